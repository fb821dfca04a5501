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
from hub.pack.format import CHUNK, HEADER, Block, Entry, Kind, Limits
from hub.pack.reader import FileSource, PackReader, block_commits, block_snapshots

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


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
    rows = limits.max_rows
    for block in reader.blocks:
        stored = _digested(reader.stored_chunks(block), digest)
        if block.kind is Kind.OBJECT:
            _check_objects(reader, block, stored)
            continue
        raw = b"".join(raw_chunks(check_stored(stored, block), block))
        if block.kind is Kind.SNAPSHOT:
            rows = _check_snapshots(reader, block, raw, rows)
        else:
            for _ in block_commits(raw, reader.entries.of_block(block)):
                pass
    end = reader.blocks[-1].offset + reader.blocks[-1].stored_length if reader.blocks else len(HEADER)
    for offset in range(end, source.size, CHUNK):
        digest.update(source.read_at(offset, min(CHUNK, source.size - offset)))
    if expect_id is not None and digest.hexdigest() != expect_id:
        raise Invalid("mpack_id", f"is {expect_id}, but the file's own SHA-256 is {digest.hexdigest()}")
    return reader


def verify_records(file: BinaryIO, *, limits: Limits) -> PackReader:
    """Check header, footer, index, and every snapshot and commit of the pack in `file`; return it opened.

    What is left to check are the objects, each by `check_object_block`, and the whole file's digest. Raises Invalid
    and TooLarge like `verify_pack`.
    """
    reader, _ = _open(file, limits)
    rows = limits.max_rows
    for block in reader.blocks:
        if block.kind is Kind.SNAPSHOT:
            rows = _check_snapshots(reader, block, reader.raw_block(block), rows)
    for _ in reader.commits():
        pass
    return reader


def check_object_block(
    reader: PackReader, block: Block, stored: Iterable[bytes]
) -> Iterator[tuple[Entry, Iterable[bytes]]]:
    """Give every object of a block, whose stored bytes are `stored`, with its content.

    The content of a block's only object comes in pieces and is checked at its end, others are checked before they
    are given. Raises Invalid.
    """
    raw = raw_chunks(check_stored(stored, block), block)
    if block.entry_count == 1:
        entry = reader.entries[block.first_entry]
        yield entry, check_content(raw, entry.entity_id)
        return
    data = _check_shared(reader, block, b"".join(raw))
    for entry in reader.entries.of_block(block):
        yield entry, (data[entry.offset : entry.offset + entry.raw_length],)


def _check_objects(reader: PackReader, block: Block, stored: Iterable[bytes]) -> None:
    raw = raw_chunks(check_stored(stored, block), block)
    if block.entry_count > 1:
        _check_shared(reader, block, b"".join(raw))
        return
    for _ in check_content(raw, reader.entries[block.first_entry].entity_id):
        pass


def _check_shared(reader: PackReader, block: Block, data: bytes) -> bytes:
    """Return `data`, the raw bytes of a block with several objects, if each of them has its id."""
    for raw_id, offset, length in reader.entries.spans(block):
        real = hashlib.sha256(data[offset : offset + length])
        if real.digest() != raw_id:
            raise Invalid(f"objects[{raw_id.hex()}]", f"its content has the id {real.hexdigest()}")
    return data


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


def _check_snapshots(reader: PackReader, block: Block, raw: bytes, rows: int) -> int:
    """Check the snapshots of a block; return how many of the `rows` that the pack may still have are left."""
    for snapshot in block_snapshots(raw, reader.entries.of_block(block)):
        # Counted one by one: a few bytes of changes stand for a whole manifest, which costs its hash.
        rows -= len(snapshot.manifest)
        if rows < 0:
            raise TooLarge("the mpack's snapshots have too many paths in all; push in steps")
    return rows
