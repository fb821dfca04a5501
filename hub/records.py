"""Ids and records: what an object, a snapshot and a commit are, and which ones are well formed.

Pure functions, the single place of these rules for both transports, the pack and the client. Ids are 64
lower-case hex digits of SHA-256; text is UTF-8; NUL is the byte 0:

    object_id   = sha256(file bytes)
    snapshot_id = sha256(NUL.join(sorted(path NUL object_id for every manifest entry)))
    commit_id   = sha256(NUL.join([NUL.join(sorted(parent ids)), snapshot_id, message, committed_at]))

Author, branch, metadata, delta and a snapshot's created_at are in no id. The rule is that of the Muse client
(commit 8c90171).
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from hub.errors import Invalid
from hub.manifest import (
    check_id,
    check_manifest,
    check_path,
    decode_manifest,
    encode_manifest,
    snapshot_id,
)
from hub.record_bytes import decode_record, decode_snapshot, encode_record, without_delta
from hub.record_keys import COMMIT_DEFAULTS, COMPUTED, check_commit_types

__all__ = [
    "EMPTY_OBJECT_ID",
    "Commit",
    "Invalid",
    "Snapshot",
    "check_branch",
    "check_id",
    "check_manifest",
    "check_path",
    "check_time",
    "commit_id",
    "commit_record",
    "decode_manifest",
    "encode_manifest",
    "object_id",
    "parse_commit",
    "parse_snapshot",
    "snapshot_id",
    "snapshot_record",
    "wire_commit",
]

EMPTY_OBJECT_ID = hashlib.sha256(b"").hexdigest()
"""The object of no bytes: always held, never stored. Also the id of the snapshot without files."""

_MAX_CREATED_AT = 64
_MAX_BRANCH = 255
_BAD_BRANCH = re.compile(r"\\|\A\.|\.\Z|\.\.|//|/\./|\A/|/\Z")


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit whose record has been checked, id included."""

    commit_id: str
    snapshot_id: str
    parents: tuple[str, ...]
    """None, one or two ids: parent_commit_id, parent2_commit_id."""
    message: str
    committed_at: str
    """ISO 8601 with offset, the very string that is hashed."""
    author: str
    branch: str
    """The branch it was made on; says nothing about where it is now."""
    raw: bytes
    """The record, a msgpack map, exactly as it was received."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot whose manifest has been checked, id included."""

    snapshot_id: str
    manifest: dict[str, str]
    """Path → object id, complete."""
    created_at: str
    """As received; in no id; empty when the record had none."""


def object_id(content: bytes) -> str:
    """The id of an object: SHA-256 of its bytes."""
    return hashlib.sha256(content).hexdigest()


def commit_id(parents: Sequence[str], snapshot_id: str, message: str, committed_at: str) -> str:
    """The id of a commit; the order of `parents` does not matter."""
    fields = ("\0".join(sorted(parents)), snapshot_id, message, committed_at)
    return hashlib.sha256("\0".join(fields).encode()).hexdigest()


def check_time(value: str, field: str) -> str:
    """Return `value` if it is canonical ISO 8601 with an offset.

    Canonical: `datetime.fromisoformat(value).isoformat() == value`. The client writes it anew so, and any
    other spelling would not verify there. Raises Invalid naming `field`.
    """
    try:
        moment = datetime.fromisoformat(value)
        # The database keeps instants in UTC: one whose year is out of range there could never be read again.
        moment.astimezone(UTC)
    except (ValueError, OverflowError):
        moment = None
    if moment is None or moment.tzinfo is None or moment.isoformat() != value:
        raise Invalid(field, "must be ISO 8601 with an offset, like 2026-03-24T12:00:00.123456+00:00")
    return value


def check_branch(name: object, field: str = "branch") -> str:
    """Return `name` if a branch may be called so.

    1 to 255 characters; no backslash or control character; no leading, trailing or double dot or slash, no segment
    that is a dot: a client makes a file of it, and `a/./b` is the one of `a/b`.
    Raises Invalid naming `field`.
    """
    if not isinstance(name, str) or not 1 <= len(name) <= _MAX_BRANCH:
        raise Invalid(field, f"a branch name must have 1 to {_MAX_BRANCH} characters")
    # Cc are the control characters, Cs the surrogates, which no UTF-8 text can hold.
    if _BAD_BRANCH.search(name) or any(unicodedata.category(character) in {"Cc", "Cs"} for character in name):
        raise Invalid(
            field,
            "a branch name must not hold a backslash, a control character, «..», «//» or «/./», "
            "nor begin or end with a dot or a slash",
        )
    return name


def parse_commit(record: Mapping[str, Any] | bytes, field: str = "commit") -> Commit:
    """Check one commit record and return it as a Commit.

    `record` is the msgpack map as received, or the map itself (then `raw` is its msgpack form). Checks what a
    single record can show: keys and types, ids, NUL, canonical time, parents, and the recomputed id. That
    parents, snapshot and objects exist is for the caller. Raises Invalid naming `field` and the key, TooLarge
    above the record limits.
    """
    raw = record if isinstance(record, bytes) else encode_record(record, field)
    values = decode_record(raw, field)
    check_commit_types(values, field)
    claimed = check_id(values["commit_id"], f"{field}.commit_id")
    snapshot = check_id(values["snapshot_id"], f"{field}.snapshot_id")
    check_time(values["committed_at"], f"{field}.committed_at")
    first, second = values.get("parent_commit_id"), values.get("parent2_commit_id")
    if first is None and second is not None:
        raise Invalid(f"{field}.parent2_commit_id", "must be nil when parent_commit_id is nil")
    parents = tuple(
        check_id(parent, f"{field}.{key}")
        for key, parent in (("parent_commit_id", first), ("parent2_commit_id", second))
        if parent is not None
    )
    real = commit_id(parents, snapshot, values["message"], values["committed_at"])
    if real != claimed:
        raise Invalid(f"{field}.commit_id", f"is {claimed}, but the record's own id is {real}")
    author, branch = values.get("author", ""), values.get("branch", "")
    return Commit(claimed, snapshot, parents, values["message"], values["committed_at"], author, branch, raw)


def parse_snapshot(record: Mapping[str, Any] | bytes, field: str = "snapshot") -> Snapshot:
    """Check one snapshot record, a map or msgpack, and return it as a Snapshot: paths, ids, and the recomputed id.

    Raises Invalid naming `field` and the key.
    """
    if isinstance(record, bytes):
        record = decode_snapshot(record, field)
    if not isinstance(record, Mapping):
        raise Invalid(field, "must be a map")
    for key in ("snapshot_id", "manifest"):
        if key not in record:
            raise Invalid(f"{field}.{key}", "is missing")
    claimed = check_id(record["snapshot_id"], f"{field}.snapshot_id")
    manifest = check_manifest(record["manifest"], f"{field}.manifest")
    return make_snapshot(claimed, manifest, record.get("created_at", ""), field)


def make_snapshot(
    claimed: str, manifest: dict[str, str], created_at: object, field: str, real: str | None = None
) -> Snapshot:
    """A Snapshot of a manifest that `check_manifest` has passed. Raises Invalid for any other fault.

    `real` is the manifest's own id, where the caller has computed it.
    """
    if not isinstance(created_at, str) or len(created_at) > _MAX_CREATED_AT or not created_at.isascii():
        raise Invalid(f"{field}.created_at", f"must be ASCII text of at most {_MAX_CREATED_AT} characters")
    if "\0" in created_at:
        raise Invalid(f"{field}.created_at", "must not hold NUL")
    real = real or snapshot_id(manifest)
    if real != claimed:
        raise Invalid(f"{field}.snapshot_id", f"is {claimed}, but the manifest's own id is {real}")
    return Snapshot(claimed, manifest, created_at)


def commit_record(
    *, snapshot_id: str, message: str, committed_at: str, parents: Sequence[str] = (), **others: Any
) -> dict[str, Any]:
    """A commit record of all 22 keys, its id computed.

    `others` are further keys of the record (author, branch, repo_id, …); an unknown one raises TypeError,
    more than two parents ValueError.
    """
    if unknown := others.keys() - (COMMIT_DEFAULTS.keys() - COMPUTED):
        raise TypeError(f"{min(unknown)} is not a key of a commit record that can be set")
    if len(parents) > 2:
        raise ValueError("a commit record has at most two parents")
    first, second = [*parents, None, None][:2]
    return {
        **{key: value.copy() if isinstance(value, (dict, list)) else value for key, value in COMMIT_DEFAULTS.items()},
        **others,
        "commit_id": commit_id(parents, snapshot_id, message, committed_at),
        "snapshot_id": snapshot_id,
        "message": message,
        "committed_at": committed_at,
        "parent_commit_id": first,
        "parent2_commit_id": second,
    }


def snapshot_record(manifest: Mapping[str, str], created_at: str) -> dict[str, Any]:
    """A snapshot record, its id computed."""
    return {"snapshot_id": snapshot_id(manifest), "manifest": dict(manifest), "created_at": created_at}


def wire_commit(raw: bytes) -> bytes:
    """The msgpack record as it is sent on fetch: without structured_delta, which no client keeps on receipt."""
    return without_delta(raw, "commit")
