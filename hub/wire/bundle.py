"""The bodies of `push/objects` and `push`, taken apart as they come: one record in memory at a time.

Nothing that nests is ever decoded here, since one byte of msgpack can become a map of 64 bytes in memory: lists and
maps are entered by their headers, what is not known is skipped, and a record is cut out of the stream as it came.
"""

from __future__ import annotations

from collections.abc import Iterator
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


@dataclass(frozen=True, slots=True)
class PushRequest:
    """What a `push` asks for; its records lie in the pack that was written."""

    branch: str
    force: bool
    summary: PackSummary


class _Tape:
    """The body's stream, and what the last read gave; while it records, all that was read."""

    def __init__(self, stream: CappedStream) -> None:
        self._stream = stream
        self._held = bytearray()
        self._end = 0
        """How much of the body was read."""
        self._records = False

    def read(self, size: int) -> bytes:
        chunk = self._stream.read(size)
        # The decoder reads only for what it lacks: whatever it has not consumed lies in the last chunk.
        if not self._records:
            self._held.clear()
        self._held += chunk
        self._end += len(chunk)
        if self._records and len(self._held) > RECORD_BYTES + 2 * CHUNK_BYTES:
            raise TooLarge(f"One record of the body is larger than the {RECORD_BYTES} bytes that this hub takes.")
        return chunk

    def record(self, start: int) -> None:
        """Keep what is read from `start` of the body on, and nothing before it."""
        del self._held[: len(self._held) - (self._end - start)]
        self._records = True

    def cut(self, length: int) -> bytes:
        """The first bytes since `record`."""
        self._records = False
        if length > RECORD_BYTES:
            raise TooLarge(f"One record of the body is larger than the {RECORD_BYTES} bytes that this hub takes.")
        return bytes(memoryview(self._held)[:length])


class _Body:
    """A msgpack body, walked without decoding anything that nests."""

    def __init__(self, stream: CappedStream, value_bytes: int) -> None:
        self._tape = _Tape(stream)
        self._unpacker = msgpack.Unpacker(
            self._tape,
            raw=False,
            read_size=min(CHUNK_BYTES, value_bytes),
            max_buffer_size=value_bytes + CHUNK_BYTES,
            max_map_len=0,
            max_array_len=0,
            max_ext_len=0,
        )

    def fields(self) -> Iterator[str]:
        """Enter a map; its keys, each to be followed by one call for its value."""
        for _ in range(self._unpacker.read_map_header()):
            key = self.value()
            if not isinstance(key, str):
                raise Invalid("body", "must be a map with text keys.")
            yield key

    def places(self) -> Iterator[int]:
        """Enter a list; the places of its items, each to be followed by one call for the item."""
        yield from range(self._unpacker.read_array_header())

    def value(self) -> Any:
        """The next value, which is no list and no map."""
        return self._unpacker.unpack()

    def skip(self) -> None:
        """Pass over the next value, whatever it is."""
        self._unpacker.skip()

    def record(self) -> bytes:
        """The next value as it came, not decoded. Raises TooLarge above RECORD_BYTES."""
        start = self._unpacker.tell()
        self._tape.record(start)
        self._unpacker.skip()
        return self._tape.cut(self._unpacker.tell() - start)

    def end(self) -> None:
        """Raise Invalid unless the body ends here."""
        if self._unpacker.read_bytes(1):
            raise Invalid("body", "has bytes after its end.")


def read_objects(stream: CappedStream, object_bytes: int) -> Iterator[tuple[str, bytes]]:
    """(id, content) of each object in a `push/objects` body. Raises Invalid and TooLarge while it is read."""
    with _decoding("body"):
        body = _Body(stream, object_bytes)
        for key in body.fields():
            if key == "objects":
                yield from _objects(body, object_bytes)
            else:
                body.skip()
        body.end()


def read_ids(stream: CappedStream, name: str, most: int) -> Iterator[list[str]]:
    """The ids of the list `name` of a body, at most `most` at a time. Raises Invalid and TooLarge while it is read."""
    with _decoding("body"):
        body = _Body(stream, CHUNK_BYTES)
        for key in body.fields():
            if key != name:
                body.skip()
                continue
            some: list[str] = []
            for place in body.places():
                some.append(check_id(body.value(), f"{name}[{place}]"))
                if len(some) == most:
                    yield some
                    some = []
            if some:
                yield some
        body.end()


def read_push(stream: CappedStream, file: BinaryIO, object_bytes: int) -> PushRequest:
    """Write the bundle of a `push` body to `file` as a pack, and say what the push asks for.

    Every record is checked on its own, its id recomputed. Raises Invalid and TooLarge.
    """
    writer = PackWriter(file)
    branch: str | None = None
    force = False
    with _decoding("body"):
        body = _Body(stream, min(object_bytes, RECORD_BYTES))
        for key in body.fields():
            if key == "bundle":
                _read_bundle(body, writer, object_bytes)
            elif key == "branch":
                branch = check_branch(body.value())
            elif key == "force":
                force = body.value()
            else:
                body.skip()
        body.end()
    if branch is None:
        raise Invalid("branch", "must be the name of the branch to move.")
    if not isinstance(force, bool):
        raise Invalid("force", "must be true or false.")
    return PushRequest(branch, force, writer.finish())


def _read_bundle(body: _Body, writer: PackWriter, object_bytes: int) -> None:
    for key in body.fields():
        if key == "commits":
            for place in body.places():
                writer.add_commit(parse_commit(body.record(), f"commits[{place}]"))
        elif key == "snapshots":
            for place in body.places():
                writer.add_snapshot(parse_snapshot(body.record(), f"snapshots[{place}]"))
        elif key == "objects":
            for object_id, content in _objects(body, object_bytes):
                writer.add_object(object_id, content)
        else:
            body.skip()


def _objects(body: _Body, object_bytes: int) -> Iterator[tuple[str, bytes]]:
    for place in body.places():
        field = f"objects[{place}]"
        object_id: Any = None
        content: Any = None
        for key in body.fields():
            if key == "object_id":
                object_id = body.value()
            elif key == "content":
                content = body.value()
            else:
                body.skip()
        if not isinstance(content, bytes):
            raise Invalid(f"{field}.content", "must be binary (msgpack bin).")
        if len(content) > object_bytes:
            raise TooLarge(f"{field} has {len(content)} bytes; this hub takes at most {object_bytes} in one object.")
        yield check_id(object_id, f"{field}.object_id"), content


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
