"""Links to a pack, up or down: what it means when one is refused."""

from __future__ import annotations

from hub.client.connections import Answer
from hub.client.errors import ClientError, LinkRefused, Refused, Unreachable
from hub.client.http import read_refusal

LINK_GONE = frozenset({400, 401, 403, 404, 410})
"""What object storage answers for a link that has expired (400 or 403, by vendor) or leads nowhere."""


def link_error(response: Answer, what: str) -> ClientError:
    """Read why a link does not work.

    Object storage explains in XML and names its inside: then a short sentence of our own is of more use.
    """
    error = read_refusal(response)
    if not isinstance(error, Refused):
        return error
    if error.status in LINK_GONE:
        return LinkRefused(
            error.status, "LINK_REFUSED", f"The {what} link is no longer accepted (HTTP {error.status})."
        )
    if error.status < 400:
        return Unreachable(f"The {what} link answers HTTP {error.status}, which makes no sense there.")
    if response.headers.get("Content-Type", "").startswith(("application/json", "text/plain")):
        return error
    sentence = f"The {what} was refused (HTTP {error.status})."
    return Refused(error.status, error.code, sentence, retry_after=error.retry_after)
