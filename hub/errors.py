"""What can go wrong in the hub, without any HTTP.

HubError
├── Invalid          the request's data breaks a rule; names the field
├── TooLarge         a limit is exceeded; names the limit
├── TooSlow          the request's body does not come
├── Unauthenticated  no valid token
├── Forbidden        a valid token without the right
├── Missing          no such thing, or none that the caller may know of
├── Conflict         the branch moved, or the push is not a fast-forward
│   └── Exists       what shall be made is there already
├── TooMany          the caller has asked for too much in one minute
├── NotReady         work that the answer needs is still under way
└── WorkFailed       work that the answer needs has failed for good
FetchNotIndexed      objects that a pack needs are not in the index (raised to the task system, never swallowed)
CorruptMpack         stored bytes of a pack are not those that were pushed (the same)

`hub.wire.errors` maps each to a status.
"""

from __future__ import annotations

from typing import Any


class HubError(Exception):
    """The hub refuses or cannot do this.

    `sentence` is what the caller reads: one short sentence, no secret, no path of the server.
    """

    code = "HUB_ERROR"

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


class Invalid(HubError):
    """Data that breaks a rule. `field` names it in the caller's own words, e.g. `commits[3].message`."""

    code = "INVALID"

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(f"{field}: {sentence}" if field else sentence)
        self.field = field


class TooLarge(HubError):
    """A limit is exceeded."""

    code = "TOO_LARGE"


class TooSlow(HubError):
    """The request's body comes slower than a client may hold a thread for."""

    code = "TOO_SLOW"


class Unauthenticated(HubError):
    """No token, or one that is unknown, expired or revoked."""

    code = "UNAUTHENTICATED"


class Forbidden(HubError):
    """The token is valid, its owner has no right to do this."""

    code = "FORBIDDEN"


class Missing(HubError):
    """Nothing of that name that the caller may know of."""

    code = "NOT_FOUND"


class Conflict(HubError):
    """The branch has moved, or the push is not a fast-forward."""

    code = "DIVERGED"


class Exists(Conflict):
    """What shall be made is there already."""

    code = "EXISTS"


class TooMany(HubError):
    """The caller has asked for too much; again after `retry_after` seconds."""

    code = "RATE_LIMITED"

    def __init__(self, sentence: str, *, retry_after: int) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after


class NotReady(HubError):
    """Work under way; try again after `retry_after` seconds. `why` lists the jobs that are waited for."""

    code = "MPACK_NOT_READY"

    def __init__(self, sentence: str, *, retry_after: int, why: list[dict[str, Any]]) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after
        self.why = why


class WorkFailed(HubError):
    """A job that the answer needs has ended for good without success."""

    code = "MPACK_INDEX_FAILED"

    def __init__(self, sentence: str, *, job_id: str) -> None:
        super().__init__(sentence)
        self.job_id = job_id


class FetchNotIndexed(Exception):
    """Objects that a pack needs are not in the index: it must not be built shorter."""

    def __init__(self, missing: int) -> None:
        super().__init__(f"{missing} objects are not indexed")
        self.missing = missing


class CorruptMpack(Exception):
    """The stored bytes of a pack are not those that were pushed."""

    def __init__(self, mpack_id: str, sentence: str) -> None:
        super().__init__(f"pack {mpack_id} in the archive is damaged: {sentence}")
        self.mpack_id = mpack_id
