"""What comes in with a call of the API: a small JSON object, and the parameters of a page."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from flask import request

from hub.errors import Invalid
from hub.wire.codec import is_unicode, read_whole

BODY_BYTES = 64 * 1024
"""Cap of a body: no call needs more than a few hundred bytes."""
PAGE = 50
PAGE_MAX = 200


def read_object(*fields: str) -> dict[str, Any]:
    """The body as a JSON object with no other fields than these; an empty body is an empty object.

    Raises Invalid for anything else and TooLarge above BODY_BYTES.
    """
    raw = read_whole(BODY_BYTES)
    try:
        data = json.loads(raw, object_pairs_hook=_unique, parse_constant=_no_number) if raw.strip() else {}
    except (ValueError, RecursionError):
        raise Invalid("body", "must be one JSON object, in UTF-8 and without a key twice.") from None
    if not isinstance(data, dict):
        raise Invalid("body", "must be one JSON object.")
    for name in data:
        if name not in fields:
            raise Invalid("body", f"has a field that this call does not know; it knows {', '.join(fields) or 'none'}.")
    return data


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError
    return dict(pairs)


def _no_number(word: str) -> NoReturn:
    raise ValueError(word)


def take_choice(data: dict[str, Any], field: str, choices: tuple[str, ...]) -> str:
    """A field that must be one of these words."""
    value = data.get(field)
    if value not in choices:
        raise Invalid(field, f"must be one of {', '.join(choices)}.")
    return str(value)


def take_words(data: dict[str, Any], field: str, default: str) -> str:
    """A text field, or the default when it is absent or null."""
    value = data.get(field)
    if value is None:
        return default
    if not isinstance(value, str) or not is_unicode(value) or "\0" in value:
        raise Invalid(field, "must be text without NUL.")
    return value


def page_limit() -> int:
    """`?limit=`: how many items a page has."""
    text = request.args.get("limit")
    if text is None:
        return PAGE
    if not text.isascii() or not text.isdigit() or len(text) > 4 or not 1 <= int(text) <= PAGE_MAX:
        raise Invalid("limit", f"must be a whole number from 1 to {PAGE_MAX}.")
    return int(text)
