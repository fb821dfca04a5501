"""What may enter the database: checked here, before any SQL, with the field named.

Postgres stores no NUL and no lone surrogate; everything else of Unicode passes unchanged, and keys are equal
when their code points are (NFC and NFD spellings differ).
"""

from __future__ import annotations

import json
import math
import unicodedata
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any

from tasks.errors import ERROR_CODE, PayloadError

if TYPE_CHECKING:
    from collections.abc import Sequence

PAYLOAD_BYTES_MAX = 64 * 1024
"""Cap of a payload, a result and a progress report, as UTF-8 JSON."""
NAME_BYTES_MAX = 200
SCOPE_BYTES_MAX = 400
WORKER_BYTES_MAX = 400
KEY_BYTES_MAX = 2048
"""With a task name it still fits into one entry of a B-tree."""
DEPTH_MAX = 64
INT_BITS_MAX = 4096
INT_DIGITS_SURE = 1233
"""Every integer of so many digits is within INT_BITS_MAX."""
ERROR_CHARACTERS_MAX = 2048
CUT = "… [cut]"
SECONDS_MAX = 10 * 366 * 86400
RUNNING_MAX = 1_000_000
PARENTS_MAX = 100_000

# Circles are found by their depth.
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False)
_TEXT = frozenset((str,))
_CALL = frozenset(("args", "kwargs"))
_TOGETHER = 20
"""Payloads written as one text: so few that their brackets leave no doubt about the depth of any."""
_CONTROLS = {n: None for n in range(0x110) if unicodedata.category(chr(n)) == "Cc" and chr(n) not in "\n\t"}


def check_text(field: str, text: object, bytes_max: int, *, empty: bool = False) -> str:
    """Return `text` when Postgres can store it and it is short enough.

    Raises PayloadError naming `field`.
    """
    if not isinstance(text, str):
        raise PayloadError(field, f"must be text, not {type(text).__name__}")
    if not text and not empty:
        raise PayloadError(field, "must not be empty")
    if "\x00" in text:
        raise PayloadError(field, "must not contain the character NUL")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise PayloadError(field, "must not contain a lone surrogate") from None
    if size > bytes_max:
        raise PayloadError(field, f"must be at most {bytes_max} bytes of UTF-8")
    return text


_Where = str | tuple["_Where", int | str | None]
"""A field, or a part of one: the whole, and its place or key in there; None: a key. Only an error writes it out."""


def _field(where: _Where) -> str:
    if isinstance(where, str):
        return where
    whole, part = _field(where[0]), where[1]
    if part is None:
        return f"{whole} (a key)"
    if isinstance(part, int):
        return f"{whole}[{part}]"
    return f"{whole}.{part}" if whole else part


def _is_plain(text: str) -> bool:
    """Whether nothing can be wrong with it, as with most texts: then nothing needs to be named or encoded."""
    return text.isascii() and "\x00" not in text and len(text) <= PAYLOAD_BYTES_MAX


def _check_value(where: _Where, value: object, depth: int) -> None:
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, str):
        if not _is_plain(value):
            check_text(_field(where), value, PAYLOAD_BYTES_MAX, empty=True)
    elif isinstance(value, int):
        if value.bit_length() > INT_BITS_MAX:
            raise PayloadError(_field(where), f"must be an integer of at most {INT_BITS_MAX} bits")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise PayloadError(_field(where), "must be a finite number")
    elif isinstance(value, (list, tuple, dict)):
        _check_parts(where, value, depth + 1)
    else:
        raise PayloadError(_field(where), f"{type(value).__name__} is not a JSON value")


def _check_parts(where: _Where, whole: list[Any] | tuple[Any, ...] | dict[Any, Any], depth: int) -> None:
    if depth > DEPTH_MAX and whole:
        raise PayloadError(_field(where), f"must not be nested deeper than {DEPTH_MAX} levels")
    if isinstance(whole, (list, tuple)):
        for position, item in enumerate(whole):
            _check_value((where, position), item, depth)
        return
    for key, item in whole.items():
        if not isinstance(key, str):
            raise PayloadError(_field(where), f"keys must be text, not {type(key).__name__}")
        if not _is_plain(key):
            check_text(_field((where, None)), key, PAYLOAD_BYTES_MAX, empty=True)
        _check_value((where, key), item, depth)


def encode(field: str, value: object) -> str:
    """Write `value` as JSON.

    Raises PayloadError, naming the part of `value` that is not JSON or cannot be stored, or `field` when the
    whole is over the cap. Looks at each part only when the text leaves a doubt: writing it takes a tenth of the time.
    """
    try:
        text = _JSON.encode(value)
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError):
        _check_value(field, value, 0)
        raise
    if _is_doubtful(text, value):
        _check_value(field, value, 0)
    if size > PAYLOAD_BYTES_MAX:
        raise PayloadError(field or "payload", f"must be at most {PAYLOAD_BYTES_MAX} bytes as JSON")
    return text


def _is_doubtful(text: str, value: object) -> bool:
    """Whether there may be in the value what JSON can write and we refuse.

    That is an integer that is too long, NUL, parts nested too deep, or a key that was no text. Keys are looked at here
    for the value and its own parts, where most dicts are: there is a doubt when there are more.
    """
    dicts = text.count("{")
    return (
        len(text) > INT_DIGITS_SURE
        or "\\u0000" in text
        or dicts + text.count("[") > DEPTH_MAX
        or (dicts > 0 and dicts > _count_text_keyed(value))
    )


def _count_text_keyed(value: object) -> int:
    """Count the dicts with nothing but text for keys: the value itself and its own parts."""
    if type(value) is not dict:
        return 0
    count = 0
    for one in (value, *value.values()):
        count += type(one) is dict and _TEXT.issuperset(map(type, one))
    return count


def encode_call(payload: object) -> str:
    """Write the payload of a job as JSON. Raises PayloadError as `encode` does, or when it is not what a job takes."""
    if not isinstance(payload, dict) or payload.keys() != _CALL:
        raise PayloadError("payload", 'must be {"args": […], "kwargs": {…}}')
    return encode("", payload)


def encode_calls(payloads: Sequence[Any]) -> str:
    """Write payloads as one JSON array. Raises PayloadError as `encode_call` does for the first that is wrong."""
    parts = [payloads[begin : begin + _TOGETHER] for begin in range(0, len(payloads), _TOGETHER)]
    return "[" + ",".join([_encode_plain(part) or ",".join(map(encode_call, part)) for part in parts]) + "]"


def _encode_plain(payloads: Sequence[Any]) -> str | None:
    """Write payloads, without brackets around them, when their text leaves no doubt about any; else None."""
    try:
        text = _JSON.encode(payloads)
        args, kwargs = [one["args"] for one in payloads], [one["kwargs"] for one in payloads]
        is_plain = (
            len(text.encode()) <= PAYLOAD_BYTES_MAX
            and "\\u0000" not in text
            and max(map(len, text.split(","))) <= INT_DIGITS_SURE
            and text.count("{") == len(args) + len(kwargs)  # no other dicts: all keys are seen here
            and text.count("[") <= DEPTH_MAX - 2
            and {*map(len, payloads)} == {2}
            and {*map(type, kwargs)} == {dict}
            and _TEXT.issuperset(map(type, chain.from_iterable(kwargs)))
        )
    except (LookupError, TypeError, ValueError, RecursionError):
        return None
    return text[1:-1] if is_plain else None


def check_instant(field: str, value: datetime | None) -> datetime | None:
    """Return `value` when it is None or an aware datetime.

    Raises PayloadError: a naive datetime does not say which instant it is.
    """
    if value is not None and (not isinstance(value, datetime) or value.utcoffset() is None):
        raise PayloadError(field, "must be an aware datetime, e.g. datetime.now(timezone.utc)")
    return value


def check_seconds(field: str, value: object, *, least: float = 0.0) -> float:
    """Return `value` when it is a number of seconds from `least` to ten years.

    Raises PayloadError naming `field`.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= SECONDS_MAX:
        raise PayloadError(field, f"must be a number of seconds from {least:g} to {SECONDS_MAX}")
    return float(value)


def check_whole(field: str, value: object, least: int, most: int) -> int:
    """Return `value` when it is a whole number from `least` to `most`.

    Raises PayloadError naming `field`.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise PayloadError(field, f"must be a whole number from {least} to {most}")
    return value


def check_word(field: str, value: object, words: tuple[str, ...]) -> object:
    """Return `value` when it is one of `words`. Raises PayloadError naming `field`."""
    if value not in words:
        raise PayloadError(field, f"must be {', '.join(words[:-1])} or {words[-1]}, not {value!r}")
    return value


def check_code(code: str) -> str:
    """Return an error code when it is well formed.

    Raises PayloadError.
    """
    if not ERROR_CODE.fullmatch(code):
        raise PayloadError("code", "must be capitals, digits and underscores, e.g. FETCH_NOT_INDEXED")
    return code


def clean_error(text: str) -> str:
    """Make any text storable: control characters but newline and tab removed, cut at 2,048 characters."""
    cut = text[: 16 * ERROR_CHARACTERS_MAX].translate(_CONTROLS)
    cut = cut.encode("utf-8", "backslashreplace").decode()
    if len(cut) <= ERROR_CHARACTERS_MAX and len(text) <= 16 * ERROR_CHARACTERS_MAX:
        return cut
    return cut[: ERROR_CHARACTERS_MAX - len(CUT)] + CUT
