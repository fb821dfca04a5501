"""The keys of a commit record, and the types of their values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hub.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Mapping

COMMIT_DEFAULTS: dict[str, Any] = {
    "commit_id": "",
    "repo_id": "",
    "branch": "",
    "snapshot_id": "",
    "message": "",
    "committed_at": "",
    "parent_commit_id": None,
    "parent2_commit_id": None,
    "author": "",
    "metadata": {},
    "structured_delta": None,
    "sem_ver_bump": "none",
    "breaking_changes": [],
    "agent_id": "",
    "model_id": "",
    "toolchain_id": "",
    "prompt_hash": "",
    "signature": "",
    "signer_key_id": "",
    "format_version": 5,
    "reviewed_by": [],
    "test_runs": 0,
}
"""The 22 keys of a commit record, each with its empty value. None: a string or nil."""

COMPUTED = frozenset({"commit_id", "parent_commit_id", "parent2_commit_id"})
"""Keys that follow from other arguments when a record is built."""

REQUIRED = ("commit_id", "snapshot_id", "message", "committed_at")
"""Keys without which a record has no id; any other may be absent."""

_TYPE_NAMES: dict[type, str] = {
    str: "string",
    int: "integer",
    list: "list of strings",
    dict: "map of string to string",
}


def check_commit_types(values: Mapping[str, Any], field: str) -> None:
    """Check that the known keys of a commit record have their types, and that no text of them holds NUL.

    NUL joins the fields that are hashed, and a text column cannot hold it. Keys that are not known here pass:
    a later client may send more. Raises Invalid naming `field` and the key.
    """
    for key in REQUIRED:
        if key not in values:
            raise Invalid(f"{field}.{key}", "is missing")
    for key, empty in COMMIT_DEFAULTS.items():
        value = values.get(key, empty)
        if empty is None and value is None:
            continue
        wanted = str if empty is None else type(empty)
        texts = _texts(value) if type(value) is wanted else None
        if texts is None or not all(isinstance(text, str) for text in texts):
            raise Invalid(f"{field}.{key}", f"must be of type {_TYPE_NAMES[wanted]}")
        if any("\0" in text for text in texts):
            raise Invalid(f"{field}.{key}", "must not hold NUL")


def _texts(value: object) -> list[Any]:
    """What must be text in a value: itself, the items of a list, keys and values of a map."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return value
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    return []
