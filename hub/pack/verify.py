"""Verifies a whole mpack, in one pass over the file and in bounded memory.

What is in memory: the index, one block that several entries share (at most 64 MiB, objects 1 MiB), or a MiB
of an object that has a block of its own.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, BinaryIO, Protocol

from hub.errors import Invalid, TooLarge
from hub.pack.blocks import check_stored, raw_chunks
from hub.pack.content import check_content
from hub.pack.format import CHUNK, HEADER, Block, Kind, Limits
from hub.pack.reader import FileSource, PackReader, block_commits, block_snapshots

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hub.records import Commit, Snapshot


class _Digest(Protocol):
    def update(self, data: bytes, /) -> None: ...


def verify_pack(file: BinaryIO, *, limits: Limits, expect_id: str | None = None) -> PackReader:
    """Check every byte of the pack in `file` and return it opened.

    The whole file's digest against `expect_id`, header, footer, index, every block's length and checksum,
    every object's hash, every record's rules and id. That the records refer to what exists is for the caller.
    Raises Invalid saying what is wrong and where, TooLarge for the limits, and nothing else, whatever the
    bytes are.
    """
    reader, source = _open(file, limits)
    digest = hashlib.sha256(HEADER)
    rows = _Rows(limits)
    for block in reader.blocks:
        stored = _digested(reader.stored_chunks(block), digest)
        if block.kind is Kind.OBJECT:
            _check_objects(reader, block, stored)
            continue
        raw, entries = b"".join(raw_chunks(check_stored(stored, block), block)), reader.entries.of_block(block)
        snapshots = block.kind is Kind.SNAPSHOT
        for _ in rows.counted(block_snapshots(raw, entries)) if snapshots else block_commits(raw, entries):
            pass
    end = reader.blocks[-1].offset + reader.blocks[-1].stored_length if reader.blocks else len(HEADER)
    for offset in range(end, source.size, CHUNK):
        digest.update(source.read_at(offset, min(CHUNK, source.size - offset)))
    if expect_id is not None and digest.hexdigest() != expect_id:
        raise Invalid("mpack_id", f"is {expect_id}, but the file's own SHA-256 is {digest.hexdigest()}")
    return reader


def verify_records(
    file: BinaryIO, *, limits: Limits, tip: str
) -> tuple[PackReader, dict[str, Commit], Snapshot | None]:
    """Check header, footer, index, and every snapshot and commit of the pack in `file`.

    Returns it opened, its commits by id, and the snapshot of the commit `tip`, None when it is not there. What is left
    to check are the objects, each by `check_object_block`, and the whole file's digest. Raises Invalid and TooLarge
    like `verify_pack`.
    """
    reader, _ = _open(file, limits)
    commits = {commit.commit_id: commit for commit in reader.commits()}
    wanted = commits[tip].snapshot_id if tip in commits else None
    found = None
    for snapshot in _Rows(limits).counted(reader.snapshots()):
        if snapshot.snapshot_id == wanted:
            found = snapshot
    return reader, commits, found


def check_object_block(
    reader: PackReader, block: Block, stored: Iterable[bytes]
) -> Iterator[tuple[str, Iterable[bytes]]]:
    """Give the id of every object of a block, whose stored bytes are `stored`, with its content.

    The content of a block's only object comes in pieces and is checked at its end, others are checked before they
    are given. Raises Invalid.
    """
    raw = raw_chunks(check_stored(stored, block), block)
    if block.entry_count == 1:
        object_id = reader.entries[block.first_entry].entity_id
        yield object_id, check_content(raw, object_id)
        return
    for raw_id, content in _shared_objects(reader, block, b"".join(raw)):
        yield raw_id.hex(), (content,)


def _check_objects(reader: PackReader, block: Block, stored: Iterable[bytes]) -> None:
    raw = raw_chunks(check_stored(stored, block), block)
    checked: Iterable[object]
    if block.entry_count == 1:
        checked = check_content(raw, reader.entries[block.first_entry].entity_id)
    else:
        checked = _shared_objects(reader, block, b"".join(raw))
    for _ in checked:
        pass


def _shared_objects(reader: PackReader, block: Block, data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Give (raw id, content) of each of the objects in `data`, the raw bytes of their block, if it has its id."""
    for raw_id, offset, length in reader.entries.spans(block):
        content = data[offset : offset + length]
        real = hashlib.sha256(content)
        if real.digest() != raw_id:
            raise Invalid(f"objects[{raw_id.hex()}]", f"its content has the id {real.hexdigest()}")
        yield raw_id, content


def _open(file: BinaryIO, limits: Limits) -> tuple[PackReader, FileSource]:
    source = FileSource(file)
    if source.size > limits.max_file:
        raise TooLarge(f"the mpack has {source.size} bytes; at most {limits.max_file} are allowed")
    reader = PackReader.open(source, limits)
    if source.read_at(0, len(HEADER)) != HEADER:
        raise Invalid("mpack.header", "is not that of an mpack of version 1")
    return reader, source


def _digested(chunks: Iterable[bytes], digest: _Digest) -> Iterator[bytes]:
    for chunk in chunks:
        digest.update(chunk)
        yield chunk


class _Rows:
    """Counts the paths of a pack's snapshots: a few bytes of changes stand for a manifest, which costs its hash."""

    def __init__(self, limits: Limits) -> None:
        self._left = limits.max_rows

    def counted(self, snapshots: Iterable[Snapshot]) -> Iterator[Snapshot]:
        """Hand on the snapshots. Raises TooLarge at the first with more paths than the pack may still have."""
        for snapshot in snapshots:
            self._left -= len(snapshot.manifest)
            if self._left < 0:
                raise TooLarge("the mpack's snapshots have too many paths in all; push in steps")
            yield snapshot
