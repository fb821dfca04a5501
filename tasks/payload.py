"""What may enter the database: checked here, before any SQL, with the field named.

Postgres stores no NUL and no lone surrogate; everything else of Unicode passes unchanged, and keys are equal
when their code points are (NFC and NFD spellings differ).
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tasks.errors import ERROR_CODE, PayloadError
from tasks.job import DEDUP_MODES, PARENT_POLICIES, PASS_RESULTS

if TYPE_CHECKING:
    from tasks.job import NewJob

PAYLOAD_BYTES_MAX = 64 * 1024
"""Cap of a payload, a result and a progress report, as UTF-8 JSON."""
NAME_BYTES_MAX = 200
SCOPE_BYTES_MAX = 400
WORKER_BYTES_MAX = 400
KEY_BYTES_MAX = 2048
"""With a task name it still fits into one entry of a B-tree."""
DEPTH_MAX = 64
INT_BITS_MAX = 4096
ERROR_CHARACTERS_MAX = 2048
CUT = "… [cut]"
SECONDS_MAX = 10 * 366 * 86400
ATTEMPTS_MAX = 10_000
RUNNING_MAX = 1_000_000
PARENTS_MAX = 100_000

_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
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
    elif isinstance(value, (list, tuple, dict, Mapping)):  # dict: the ABC is asked last, it takes long to answer
        _check_parts(where, value, depth + 1)
    else:
        raise PayloadError(_field(where), f"{type(value).__name__} is not a JSON value")


def _check_parts(where: _Where, whole: list[Any] | tuple[Any, ...] | Mapping[Any, Any], depth: int) -> None:
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
    whole is over the cap.
    """
    _check_value(field, value, 0)
    text = _JSON.encode(value)
    if len(text.encode()) > PAYLOAD_BYTES_MAX:
        raise PayloadError(field or "payload", f"must be at most {PAYLOAD_BYTES_MAX} bytes as JSON")
    return text


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


def new_job_params(new: NewJob) -> dict[str, Any]:
    """Check every field of `new` and return the parameters of the enqueue statements, without the id.

    Raises PayloadError naming the field.
    """
    payload, key = own_params(new)
    return {**kind_params(new), "payload": payload, "dedup_key": key}


def kind_params(new: NewJob) -> dict[str, Any]:
    """Check the fields that many jobs have in common, all but those of `own_params`. Raises PayloadError."""
    if new.available_at is not None and new.countdown is not None:
        raise PayloadError("countdown", "must not be given together with available_at")
    if new.dedup_key is not None:
        check_word("dedup_mode", new.dedup_mode, DEDUP_MODES)
    return {
        **_gate_params(new),
        "task": check_text("task", new.task, NAME_BYTES_MAX),
        "queue": check_text("queue", new.queue, NAME_BYTES_MAX),
        "scope": check_text("scope", new.scope, SCOPE_BYTES_MAX, empty=True),
        "priority": check_whole("priority", new.priority, -32768, 32767),
        "tier": check_seconds("tier", new.tier),
        "available_at": check_instant("available_at", new.available_at),
        "countdown": _countdown(new),
        "lease_seconds": check_seconds("lease_seconds", new.lease_seconds, least=0.001),
        "attempts_max": check_whole("attempts_max", new.attempts_max, 1, ATTEMPTS_MAX),
        "postpones_max": check_whole("postpones_max", new.postpones_max, 0, 1_000_000),
        "dedup_mode": None if new.dedup_key is None else new.dedup_mode,
    }


def own_params(new: NewJob) -> tuple[str, str | None]:
    """Payload and key, which each job has for itself; checked, as are the ids of its parents. Raises PayloadError."""
    if not isinstance(new.payload, (dict, Mapping)) or new.payload.keys() != {"args", "kwargs"}:
        raise PayloadError("payload", 'must be {"args": […], "kwargs": {…}}')
    key = None if new.dedup_key is None else check_text("dedup_key", new.dedup_key, KEY_BYTES_MAX)
    if new.parents:
        if key is not None and new.dedup_mode == "join":
            raise PayloadError("parents", "a job that joins another cannot wait for parents of its own")
        if not all(isinstance(parent, UUID) for parent in new.parents):
            raise PayloadError("parents", "must be ids of jobs")
    return encode("", new.payload), key


def _countdown(new: NewJob) -> float | None:
    if new.available_at is not None:
        return None
    return check_seconds("countdown", 0.0 if new.countdown is None else new.countdown)


def _gate_params(new: NewJob) -> dict[str, Any]:
    """Check what may hold the job back or end it early."""
    if new.expires_at is not None and new.expires is not None:
        raise PayloadError("expires", "must not be given together with expires_at")
    if (new.limit_key is None) != (new.limit_max is None):
        raise PayloadError("limit_max", "must be given together with limit_key")
    return {
        "after_tasks": [check_text("after_tasks", name, NAME_BYTES_MAX) for name in new.after_tasks],
        "expires_at": check_instant("expires_at", new.expires_at),
        "expires": None if new.expires is None else check_seconds("expires", new.expires),
        "limit_key": None if new.limit_key is None else check_text("limit_key", new.limit_key, SCOPE_BYTES_MAX),
        "limit_max": None if new.limit_max is None else check_whole("limit_max", new.limit_max, 1, RUNNING_MAX),
        "parent_count": check_whole("parents", len(new.parents), 0, PARENTS_MAX),
        "on_parent_failure": check_word("on_parent_failure", new.on_parent_failure, PARENT_POLICIES),
        "pass_results": check_word("pass_results", new.pass_results, PASS_RESULTS),
    }
