"""The body of the answer to a Muse `fetch`: measured to the byte before it is sent, then written piece by piece.

It is one msgpack map: commits (parents first, without structured_delta), snapshots, objects, branch_heads. The heads
come last, since they alone may change while the tips stay: a ready-made body ends before them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from uuid import UUID

import msgpack
from sqlalchemy.orm import Session

from hub.difference import Difference
from hub.manifest import decode_manifest, msgpack_size
from hub.models.history import records, snapshots
from hub.pack.format import Entry
from hub.records import wire_commit

ANSWER_BYTES = 67_108_864
"""What the Muse client reads at most; a larger answer is an error to it."""
BITE = 32
"""Records that are looked up at once while a body is written."""
GATHERED_BYTES = 256 * 1024
"""Small pieces are put together to so many bytes, for each that is sent costs a system call; large ones are cut, for
they are copied once more on their way, into memory that would be fresh each time.
"""

Sessions = Callable[[], AbstractContextManager[Session]]
Objects = Iterable[tuple[Entry, Iterable[bytes]]]


def body_size(
    session: Session, repository_id: UUID, contents: Difference, lengths: Iterable[int], *, limit: int
) -> int:
    """Bytes of the body up to the heads; of one that exceeds `limit`, at least so many that this is sure.

    `lengths`: bytes of each object.
    """
    counts = (len(contents.commits), len(contents.snapshots), len(contents.objects))
    size = sum(len(part) for part in _heads_of_lists(*counts))
    size += sum(object_size(length) for length in lengths)
    if size > limit:
        return size
    for size_of_one in _record_sizes(session, repository_id, contents):
        size += size_of_one
        if size > limit:
            break
    return size


def body_chunks(
    sessions: Sessions, repository_id: UUID, contents: Difference, count: int, objects: Objects
) -> Iterator[bytes]:
    """The body up to the heads. `objects`: `count` of them, each with its content.

    Records are looked up a few at a time, with no session open while a chunk is out.
    """
    return _gathered(_pieces(sessions, repository_id, contents, count, objects))


def _pieces(
    sessions: Sessions, repository_id: UUID, contents: Difference, count: int, objects: Objects
) -> Iterator[bytes]:
    commits, snapshot_list, object_list = _heads_of_lists(len(contents.commits), len(contents.snapshots), count)
    yield commits
    for some in _bites(contents.commits):
        with sessions() as session:
            found = list(records(session, repository_id, some))
        yield b"".join(wire_commit(record) for record in found)
    yield snapshot_list
    for some in _bites(contents.snapshots):
        with sessions() as session:
            rows = list(snapshots(session, repository_id, some))
        for snapshot_id, manifest, created_at in rows:
            yield pack_snapshot(snapshot_id, decode_manifest(manifest), created_at)
    yield object_list
    for entry, content in objects:
        yield _object_head(entry.entity_id, entry.raw_length)
        yield from content


def _gathered(pieces: Iterable[bytes]) -> Iterator[bytes]:
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        for start in range(0, len(piece), GATHERED_BYTES):
            held.append(piece[start : start + GATHERED_BYTES])
            size += len(held[-1])
            if size >= GATHERED_BYTES:
                yield b"".join(held)
                held, size = [], 0
    if held:
        yield b"".join(held)


def body_tail(heads: Mapping[str, str]) -> bytes:
    """The end of the body: the branches as they are now."""
    return bytes(msgpack.packb("branch_heads") + msgpack.packb(dict(heads)))


def pack_snapshot(snapshot_id: str, manifest: Mapping[str, str], created_at: str) -> bytes:
    """A snapshot as the body has it."""
    record = {"snapshot_id": snapshot_id, "manifest": dict(manifest), "created_at": created_at}
    return bytes(msgpack.packb(record))


def object_size(length: int) -> int:
    """Bytes of an object of `length` bytes in the body: the map, its two keys, the id, the content and its head."""
    head = 2 if length < 1 << 8 else 3 if length < 1 << 16 else 5
    return 1 + 10 + 66 + 8 + head + length


def snapshot_size(encoded: bytes, created_at: str) -> int:
    """Bytes of a snapshot in the body, from its manifest as the database has it."""
    return len(pack_snapshot("0" * 64, {}, created_at)) - 1 + msgpack_size(encoded)


def _record_sizes(session: Session, repository_id: UUID, contents: Difference) -> Iterator[int]:
    for record in records(session, repository_id, contents.commits):
        yield len(wire_commit(record))
    for some in _bites(contents.snapshots):
        for _, manifest, created_at in snapshots(session, repository_id, some):
            yield snapshot_size(manifest, created_at)


def _heads_of_lists(commits: int, snapshot_count: int, objects: int) -> tuple[bytes, bytes, bytes]:
    packer = msgpack.Packer()
    return (
        packer.pack_map_header(4) + packer.pack("commits") + packer.pack_array_header(commits),
        packer.pack("snapshots") + packer.pack_array_header(snapshot_count),
        packer.pack("objects") + packer.pack_array_header(objects),
    )


def _object_head(object_id: str, length: int) -> bytes:
    packer = msgpack.Packer(autoreset=False)
    packer.pack_map_header(2)
    for text in ("object_id", object_id, "content"):
        packer.pack(text)
    if length < 1 << 8:
        head = b"\xc4" + length.to_bytes(1, "big")
    elif length < 1 << 16:
        head = b"\xc5" + length.to_bytes(2, "big")
    else:
        head = b"\xc6" + length.to_bytes(4, "big")
    return bytes(packer.bytes()) + head


def _bites(ids: Sequence[str]) -> Iterator[list[str]]:
    return (list(ids[start : start + BITE]) for start in range(0, len(ids), BITE))
