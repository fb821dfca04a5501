"""The shape of an answer: what is not as it should be is refused by name, not guessed at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hub.client.errors import Unreachable
from hub.records import Invalid, check_id


def text(value: object) -> str:
    """Return a text, empty for anything else."""
    return value if isinstance(value, str) else ""


def optional_text(fields: Mapping[str, Any], name: str) -> str | None:
    """Return the text `name`, None when there is none."""
    value = fields.get(name)
    return value if isinstance(value, str) and value else None


def required_text(fields: Mapping[str, Any], name: str) -> str:
    """Return the text `name`. Raises Unreachable without one."""
    value = fields.get(name)
    if not isinstance(value, str) or not value:
        raise unexpected(name, "a text")
    return value


def unexpected(name: str, right: str) -> Unreachable:
    """Make the error for a part of an answer that should be `right`."""
    return Unreachable(f"The server's answer is not a hub's: «{name}» should be {right}.")


def is_id(value: object) -> bool:
    """Whether `value` is the id of an object, a snapshot or a commit."""
    try:
        check_id(value, "id")
    except Invalid:
        return False
    return True


def take_heads(fields: Mapping[str, Any], name: str) -> dict[str, str]:
    """Return the branch names with their ids. Raises Unreachable for anything else."""
    value = fields.get(name)
    if not isinstance(value, dict) or not all(is_id(item) for item in value.values()):
        raise unexpected(name, "an object of branch names and ids")
    return value
