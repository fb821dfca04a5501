"""The bodies of `push/objects` and `push`, taken apart as they come: one record in memory at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import msgpack

from hub.errors import Invalid, TooLarge
from hub.manifest import check_id
from hub.pack.format import PackSummary
from hub.pack.writer import PackWriter
from hub.records import check_branch, parse_commit, parse_snapshot
from hub.wire.codec import CHUNK_BYTES, CappedStream

RECORD_BYTES = 32 * 1024 * 1024
"""Cap of one commit or snapshot as sent: a manifest of about 250,000 files."""
MAP_KEYS = 2_000_000
LIST_ITEMS = 1_000_000


@dataclass(frozen=True, slots=True)
class PushRequest:
    """What a `push` asks for; its records lie in the pack that was written."""

    branch: str
    force: bool
    summary: PackSummary


def read_objects(stream: CappedStream, object_bytes: int) -> Iterator[tuple[str, bytes]]:
    """(id, content) of each object in a `push/objects` body. Raises Invalid and TooLarge while it is read."""
    with _decoding("body"):
        unpacker = _unpacker(stream, object_bytes + 1024)
        for key in _keys(unpacker):
            if key == "objects":
                yield from _objects(unpacker, object_bytes)
            else:
                unpacker.skip()
        _end(unpacker)


def read_push(stream: CappedStream, file: BinaryIO, object_bytes: int) -> PushRequest:
    """Write the bundle of a `push` body to `file` as a pack, and say what the push asks for.

    Every record is checked on its own, its id recomputed. Raises Invalid and TooLarge.
    """
    writer = PackWriter(file)
    branch: str | None = None
    force = False
    with _decoding("body"):
        unpacker = _unpacker(stream, RECORD_BYTES)
        for key in _keys(unpacker):
            if key == "bundle":
                _read_bundle(unpacker, writer, object_bytes)
            elif key == "branch":
                branch = check_branch(unpacker.unpack())
            elif key == "force":
                force = unpacker.unpack()
            else:
                unpacker.skip()
        _end(unpacker)
    if branch is None:
        raise Invalid("branch", "must be the name of the branch to move.")
    if not isinstance(force, bool):
        raise Invalid("force", "must be true or false.")
    return PushRequest(branch, force, writer.finish())


def _read_bundle(unpacker: msgpack.Unpacker, writer: PackWriter, object_bytes: int) -> None:
    def commit(place: int) -> None:
        writer.add_commit(parse_commit(_map(unpacker, f"commits[{place}]"), f"commits[{place}]"))

    def snapshot(place: int) -> None:
        writer.add_snapshot(parse_snapshot(_map(unpacker, f"snapshots[{place}]"), f"snapshots[{place}]"))

    readers: dict[str, Callable[[int], None]] = {"commits": commit, "snapshots": snapshot}
    for key in _keys(unpacker):
        if key == "objects":
            for object_id, content in _objects(unpacker, object_bytes):
                writer.add_object(object_id, content)
        elif key in readers:
            for place in range(unpacker.read_array_header()):
                readers[key](place)
        else:
            unpacker.skip()


def _objects(unpacker: msgpack.Unpacker, object_bytes: int) -> Iterator[tuple[str, bytes]]:
    for place in range(unpacker.read_array_header()):
        field = f"objects[{place}]"
        record = _map(unpacker, field)
        content = record.get("content")
        if not isinstance(content, bytes):
            raise Invalid(f"{field}.content", "must be binary (msgpack bin).")
        if len(content) > object_bytes:
            raise TooLarge(f"{field} has {len(content)} bytes; this hub takes at most {object_bytes} in one object.")
        yield check_id(record.get("object_id"), f"{field}.object_id"), content


def _map(unpacker: msgpack.Unpacker, field: str) -> dict[str, Any]:
    record = unpacker.unpack()
    if not isinstance(record, dict):
        raise Invalid(field, "must be a map.")
    return record


def _keys(unpacker: msgpack.Unpacker) -> Iterator[str]:
    for _ in range(unpacker.read_map_header()):
        key = unpacker.unpack()
        if not isinstance(key, str):
            raise Invalid("body", "must be a map with text keys.")
        yield key


def _end(unpacker: msgpack.Unpacker) -> None:
    if unpacker.read_bytes(1):
        raise Invalid("body", "has bytes after its end.")


def _unpacker(stream: CappedStream, record_bytes: int) -> msgpack.Unpacker:
    return msgpack.Unpacker(
        stream,
        raw=False,
        read_size=min(CHUNK_BYTES, record_bytes),
        max_buffer_size=record_bytes + CHUNK_BYTES,
        max_map_len=MAP_KEYS,
        max_array_len=LIST_ITEMS,
    )


@contextmanager
def _decoding(field: str) -> Iterator[None]:
    """What msgpack says of bad bytes, in the hub's words."""
    try:
        yield
    except msgpack.OutOfData:
        raise Invalid(field, "ends before it is complete.") from None
    except msgpack.BufferFull:
        raise TooLarge("One record of the body is larger than this hub takes.") from None
    except (msgpack.UnpackException, ValueError, TypeError, RecursionError) as error:
        if isinstance(error, Invalid):
            raise
        raise Invalid(field, f"must be msgpack of the agreed form ({type(error).__name__}).") from None
