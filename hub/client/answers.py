"""The hub's JSON answers as checked values: what has another shape is refused, not guessed at."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from hub.client.errors import NotReady, Refused, Unreachable, Waiting
from hub.client.shape import is_id, optional_text, required_text, take_heads, text, unexpected

PUSH_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")


@dataclass(frozen=True, slots=True)
class Refs:
    """The branches of a repository. `snapshots` names the head's snapshot where the hub tells it.

    A pack of at most `inline_bytes` may come along with its push.
    """

    repo_id: str
    default_branch: str | None
    branch_heads: dict[str, str]
    snapshots: dict[str, str]
    inline_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """A job that a push has started."""

    id: str
    task: str
    status: str


class Pushed(NamedTuple):
    """The branch has moved; the bytes are durable; `jobs` are queued."""

    branch_heads: dict[str, str]
    push_id: str
    jobs: tuple[Job, ...]


class PushStatus(NamedTuple):
    """Where a push stands: received, indexed, prebuilt or failed (then with `reason`)."""

    status: str
    reason: str
    jobs: tuple[Job, ...]


class PackOffer(NamedTuple):
    """The pack to download; in an empty repository `mpack_id` and `url` are None, `tips` empty."""

    mpack_id: str | None
    url: str | None
    size: int
    tips: dict[str, str]
    default_branch: str | None


def decode(body: bytes) -> dict[str, Any]:
    """Parse a JSON object. Raises Unreachable for anything else."""
    try:
        value = json.loads(body)
    # RecursionError: a body of a million «[» is small enough to pass every size limit.
    except (ValueError, RecursionError):
        raise Unreachable("The server's answer is not JSON: no hub answers at this address.") from None
    if not isinstance(value, dict):
        raise Unreachable("The server's answer is not a JSON object: no hub answers at this address.")
    return value


def refusal(status: int, content_type: str, body: bytes, retry_after: float | None) -> Refused:
    """Turn an answer that is no success into the error to raise, with the server's own sentence."""
    fields: dict[str, Any] = {}
    sentence = ""
    if content_type.startswith("application/json"):
        try:
            fields = decode(body)
        except Unreachable:
            sentence = "(the server's explanation cannot be read)"
        sentence = text(fields.get("message")) or sentence
    elif content_type.startswith("text/plain"):
        sentence = body.decode("utf-8", "replace").strip()
    code = text(fields.get("error")) or f"HTTP_{status}"
    said = sentence or "The server gave no reason."
    if status == 503 and code == "MPACK_NOT_READY":
        return NotReady(said, retry_after=retry_after, why=_why(fields.get("why")))
    advice = ADVICE.get(code) or ADVICE.get(status)
    full = f"{said} (HTTP {status})" + (f" {advice}" if advice else "")
    return Refused(status, code, full, retry_after=retry_after)


ADVICE: dict[int | str, str] = {
    401: "Log in with `packhouse login`, or set PACKHOUSE_TOKEN to a valid token.",
    403: "Ask the repository's owner for the right to do this.",
    404: "Check the address; a private repository needs a token that may read it.",
    "DIVERGED": "The branch has other commits than expected: `packhouse pull` brings them, --force replaces them.",
}


def parse_refs(fields: Mapping[str, Any]) -> Refs:
    """Check the answer of `GET refs`."""
    snapshots, inline = fields.get("snapshots"), fields.get("inline_bytes", 0)
    if not isinstance(inline, int) or isinstance(inline, bool):
        raise unexpected("inline_bytes", "a number of bytes")
    return Refs(
        text(fields.get("repo_id")),
        optional_text(fields, "default_branch"),
        take_heads(fields, "branch_heads"),
        {} if snapshots is None else take_heads(fields, "snapshots"),
        inline,
    )


def parse_missing(fields: Mapping[str, Any]) -> set[str]:
    """Check the answer of `POST filter-objects`."""
    value = fields.get("missing")
    if not isinstance(value, list) or not all(is_id(item) for item in value):
        raise unexpected("missing", "a list of ids")
    return set(value)


def parse_pushed(fields: Mapping[str, Any]) -> Pushed:
    """Check the answer of `POST push/mpack`."""
    if fields.get("ok") is not True:
        raise unexpected("ok", "true")
    push_id = required_text(fields, "push_id")
    if not PUSH_ID.fullmatch(push_id):
        raise unexpected("push_id", "letters, digits, «-» and «_»")
    return Pushed(take_heads(fields, "branch_heads"), push_id, _jobs(fields))


def parse_push_status(fields: Mapping[str, Any]) -> PushStatus:
    """Check the answer of `GET pushes/ID`."""
    status = required_text(fields, "status")
    if status not in {"received", "indexed", "prebuilt", "failed"}:
        raise unexpected("status", "received, indexed, prebuilt or failed")
    return PushStatus(status, text(fields.get("reason")), _jobs(fields))


def parse_offer(fields: Mapping[str, Any], *, may_be_empty: bool = False) -> PackOffer:
    """Check the answer of `POST fetch/mpack`; `may_be_empty`: there may be branches and yet nothing to send."""
    tips = take_heads(fields, "tips")
    default = optional_text(fields, "default_branch")
    if fields.get("mpack_id") is None and (may_be_empty or not tips):
        return PackOffer(None, None, 0, tips, default)
    size = fields.get("size")
    if not is_id(fields.get("mpack_id")):
        raise unexpected("mpack_id", "an id")
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise unexpected("size", "a number of bytes")
    if not tips:
        raise unexpected("tips", "the branches that the pack holds")
    return PackOffer(fields["mpack_id"], required_text(fields, "url"), size, tips, default)


def _jobs(fields: Mapping[str, Any]) -> tuple[Job, ...]:
    value = fields.get("jobs")
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise unexpected("jobs", "a list of objects")
    return tuple(Job(*(required_text(item, name) for name in ("id", "task", "status"))) for item in value)


def _why(value: object) -> tuple[Waiting, ...]:
    items = value if isinstance(value, list) else []
    names = ("job_id", "task", "status", "sentence")
    return tuple(Waiting(*(text(item.get(name)) for name in names)) for item in items if isinstance(item, dict))
