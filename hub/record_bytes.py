"""Commit records as bytes: msgpack maps decoded without trusting a length in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgpack

from hub.errors import Invalid, TooLarge

MAX_RECORD_BYTES = 64 * 1024 * 1024
"""Bytes of one record; nearly all of a large one is its structured_delta, which is never decoded."""
MAX_PLAIN_BYTES = 1024 * 1024
"""Bytes of one record without its structured_delta."""

_DELTA = "structured_delta"
_DOMAIN = msgpack.packb("domain")
_MAX_KEY_BYTES = 256
_MAX_KEYS = 256
"""Keys of a record; the client writes 22."""
_DELTA_KEYS = 64
"""Keys of a delta among which its domain is looked for; the client writes five."""
_ENTRY_BYTES = 68
"""Bytes of a manifest's entry at least: a path of one character and an id, each with its head."""


def encode_record(record: object, field: str) -> bytes:
    """The msgpack form of a record that came as a map. Raises Invalid naming `field` for what has none."""
    if not isinstance(record, Mapping):
        raise Invalid(field, "must be a map")
    try:
        raw = msgpack.packb(dict(record), use_bin_type=True)
    except (ValueError, TypeError, OverflowError):
        raise Invalid(field, "holds a value that msgpack cannot hold, or text that is not valid UTF-8") from None
    return bytes(raw)


def decode_record(raw: bytes, field: str) -> dict[str, Any]:
    """The map that `raw` holds, without the key structured_delta.

    Raises Invalid naming `field` for anything but one whole msgpack map with unique string keys and plain
    values, TooLarge above MAX_RECORD_BYTES and MAX_PLAIN_BYTES.
    """
    if len(raw) > MAX_RECORD_BYTES:
        raise TooLarge(f"{field}: a record of {len(raw)} bytes; at most {MAX_RECORD_BYTES} are allowed")
    try:
        spans = _spans(raw, field)
        spans.pop(_DELTA, None)
        plain = sum(end - start for start, end in spans.values())
        if plain > MAX_PLAIN_BYTES:
            raise TooLarge(f"{field}: {plain} bytes besides structured_delta; at most {MAX_PLAIN_BYTES} are allowed")
        record = {key: msgpack.unpackb(raw[start:end]) for key, (start, end) in spans.items()}
    except (ValueError, TypeError, msgpack.UnpackException):
        raise Invalid(field, "is not a msgpack map of UTF-8 strings and plain values") from None
    if not _is_plain(record):
        raise Invalid(field, "must hold plain values only: no extension types, no keys that are not strings")
    return record


def decode_snapshot(raw: bytes, field: str) -> dict[str, Any]:
    """The keys snapshot_id, manifest and created_at of a snapshot record, those that are there; others are skipped.

    The manifest is the one part that is large: it is decoded as a flat map of text, and anything that nests ends it
    before it is built, since one byte of msgpack can become a map in memory. Raises Invalid naming `field`.
    """
    try:
        spans = _spans(raw, field)
        values = {
            key: _flat(raw[start:end]) if key == "manifest" else _scalar(raw[start:end])
            for key, (start, end) in spans.items()
            if key in ("snapshot_id", "manifest", "created_at")
        }
    except (ValueError, TypeError, msgpack.UnpackException):
        raise Invalid(field, "is not a msgpack map of text, and its manifest a map of path to object id") from None
    return values


def _scalar(raw: bytes) -> Any:
    return msgpack.unpackb(raw, max_array_len=0, max_map_len=0, max_ext_len=0)


def _flat(raw: bytes) -> Any:
    """A map without anything inside but text and numbers. Raises ValueError for others."""
    maps = 0

    def count(found: dict[str, Any]) -> dict[str, Any]:
        # Maps are handed over innermost first: of a nested one, the second call is the first that shows it.
        nonlocal maps
        maps += 1
        if maps > 1:
            raise ValueError("a map in a map")
        return found

    most = len(raw) // _ENTRY_BYTES + 1
    return msgpack.unpackb(raw, max_array_len=0, max_map_len=most, max_ext_len=0, object_hook=count)


def without_delta(raw: bytes, field: str) -> bytes:
    """The record without the key structured_delta; every other value byte for byte as it was received.

    For records that `decode_record` takes. Raises Invalid naming `field` for bytes that are no map.
    """
    spans = _spans(raw, field)
    spans.pop(_DELTA, None)
    pairs = [msgpack.packb(key) + raw[start:end] for key, (start, end) in spans.items()]
    return bytes(msgpack.Packer().pack_map_header(len(pairs))) + b"".join(pairs)


def delta_domain(raw: bytes) -> str | None:
    """The `domain` in the structured_delta of a record that `decode_record` takes; None when there is none.

    Nothing else of the delta is decoded: it is the client's own, as large as the record may be, and of any form.
    """
    start, end = _spans(raw, "commit").get(_DELTA, (0, 0))
    delta = raw[start:end]
    walker = msgpack.Unpacker(max_buffer_size=max(len(delta), 1))
    walker.feed(delta)
    try:
        for _ in range(min(walker.read_map_header(), _DELTA_KEYS)):
            start = walker.tell()
            walker.skip()
            middle = walker.tell()
            walker.skip()
            if delta[start:middle] == _DOMAIN and walker.tell() - middle <= _MAX_KEY_BYTES:
                domain = msgpack.unpackb(delta[middle : walker.tell()])
                return domain if isinstance(domain, str) else None
    except (ValueError, msgpack.UnpackException):
        return None  # the delta is no map, or the domain no text
    return None


def _spans(raw: bytes, field: str) -> dict[str, tuple[int, int]]:
    """Where the value of each key begins and ends.

    Skipping allocates nothing and fails at the first element that is not there, so that a declared count is
    known to be true before anything is built from it: `unpackb` alone takes memory for every count first.
    """
    walker = msgpack.Unpacker(max_buffer_size=max(len(raw), 1))
    walker.feed(raw)
    spans: dict[str, tuple[int, int]] = {}
    count = walker.read_map_header()
    if count > _MAX_KEYS:
        raise Invalid(field, f"has {count} keys, at most {_MAX_KEYS} are allowed")
    for _ in range(count):
        start = walker.tell()
        walker.skip()
        middle = walker.tell()
        walker.skip()
        key = msgpack.unpackb(raw[start:middle]) if middle - start <= _MAX_KEY_BYTES else None
        if not isinstance(key, str):
            raise Invalid(field, f"every key must be a string of less than {_MAX_KEY_BYTES} bytes")
        if key in spans:
            raise Invalid(field, f"has the key {key!r} twice")
        spans[key] = (middle, walker.tell())
    if walker.tell() != len(raw):
        raise Invalid(field, f"has {len(raw) - walker.tell()} bytes after its end")
    return spans


def _is_plain(value: object) -> bool:
    """Whether any msgpack reader can take `value`: JSON's types and bytes, keys being strings."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            if not all(isinstance(key, str) for key in item):
                return False
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)
        elif not (item is None or isinstance(item, (str, bytes, bool, int, float))):
            return False
    return True
