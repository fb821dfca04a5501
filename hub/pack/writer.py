"""Writes an mpack to a stream in one pass.

Memory: one unfinished block of each kind, at most 8 MiB of a single object, and about 150 bytes for each
entry.
"""

from __future__ import annotations

import hashlib
import zlib
from array import array
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

from hub.pack.blocks import (
    ALONE_LEVEL,
    SHARED_LEVEL,
    check_stored,
    compress_block,
    compress_stream,
    decompress_block,
)
from hub.pack.content import check_content, measure, pieces
from hub.pack.format import (
    HEADER,
    MAX_COMMIT_BLOCK,
    MAX_OBJECT_BLOCK,
    MAX_SNAPSHOT_BLOCK,
    Block,
    Codec,
    Entry,
    Kind,
    PackSummary,
)
from hub.pack.index import BlockRow, Footer, pack_footer, pack_index
from hub.pack.snapshots import pack_snapshot, unpack_snapshots
from hub.records import Commit, Snapshot, check_id, parse_commit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_MAX_WHOLE = 8 * 1024 * 1024
"""Bytes of an object that is compressed in memory; a larger one is streamed."""
_SNAPSHOT_TARGET = 8 * 1024 * 1024


class _Open:
    """A block that is still being filled."""

    def __init__(self) -> None:
        self.ids: list[bytes] = []
        self.parts: list[bytes] = []
        self.size = 0


class PackWriter:
    """Writes one pack. The same calls give the same bytes.

    Duplicate adds of an id are ignored, the first one counts. The order in which objects are added is the
    order in which they lie, and neighbours are compressed together: add by path, then by history. After an
    error in the middle of a write the pack cannot be finished.
    """

    def __init__(self, out: BinaryIO) -> None:
        """Begin a pack on `out`, which must take all that is written to it and need not seek."""
        self._out = out
        self._digest = hashlib.sha256()
        self._size = 0
        self._rows: list[BlockRow] = []
        self._ids = bytearray()
        self._lengths = array("Q")
        self._seen: dict[Kind, set[bytes]] = {kind: set() for kind in Kind}
        self._open = {kind: _Open() for kind in Kind}
        self._base: dict[str, str] | None = None
        self._state = "open"
        self._write(HEADER)

    def __contains__(self, key: tuple[Kind, str]) -> bool:
        """Whether (kind, id) has been added."""
        return bytes.fromhex(key[1]) in self._seen[key[0]]

    def add_object(self, object_id: str, content: bytes | BinaryIO, size: int | None = None) -> None:
        """Add an object, hashing it on the way.

        `content` is a stream of exactly `size` bytes from where it stands, or the bytes themselves; without
        `size` the stream must seek. The empty object is always held and never stored. Raises Invalid when the
        content is not that of `object_id`.
        """
        self._check_open()
        raw_id = bytes.fromhex(check_id(object_id, "object_id"))
        if raw_id in self._seen[Kind.OBJECT]:
            return
        length = measure(content) if size is None else size
        checked = check_content(pieces(content, length, object_id), object_id)
        if length > _MAX_WHOLE:
            with self._unfinished():
                self._stream_object(raw_id, checked, length)
        elif length > MAX_OBJECT_BLOCK:
            self._write_block(Kind.OBJECT, [raw_id], [b"".join(checked)], ALONE_LEVEL)
        elif data := b"".join(checked):
            self._append(Kind.OBJECT, raw_id, data, MAX_OBJECT_BLOCK)
        else:
            return
        self._seen[Kind.OBJECT].add(raw_id)

    def add_snapshot(self, snapshot: Snapshot) -> None:
        """Add a snapshot. Neighbours in history added one after the other cost their difference."""
        self._check_open()
        raw_id = bytes.fromhex(snapshot.snapshot_id)
        if raw_id in self._seen[Kind.SNAPSHOT]:
            return
        pending = self._open[Kind.SNAPSHOT]
        data = pack_snapshot(snapshot, self._base)
        # A large manifest leads its block, with room for as many bytes of changes.
        target = max(_SNAPSHOT_TARGET, 2 * len(pending.parts[0])) if pending.parts else _SNAPSHOT_TARGET
        target = min(target, MAX_SNAPSHOT_BLOCK)
        if pending.parts and pending.size + len(data) > target:
            self._close_block(Kind.SNAPSHOT)
            data = pack_snapshot(snapshot, None)
        self._seen[Kind.SNAPSHOT].add(raw_id)
        self._append(Kind.SNAPSHOT, raw_id, data, target)
        self._base = dict(snapshot.manifest)

    def add_commit(self, commit: Commit) -> None:
        """Add a commit, its record byte for byte as received."""
        self._check_open()
        raw_id = bytes.fromhex(commit.commit_id)
        if raw_id not in self._seen[Kind.COMMIT]:
            self._seen[Kind.COMMIT].add(raw_id)
            self._append(Kind.COMMIT, raw_id, commit.raw, MAX_COMMIT_BLOCK)

    def copy_block(self, stored: bytes | Iterable[bytes], block: Block, entries: Sequence[Entry]) -> None:
        """Copy a block as it lies in another pack, without decompressing it.

        `stored` are its bytes, `entries` all of its entries in order. When some of them have been added
        before, only the others are added, one by one. Raises Invalid when the stored bytes are damaged,
        ValueError when `entries` are not those of the block.
        """
        self._check_open()
        _check_entries(block, entries)
        raw_ids = [bytes.fromhex(entry.entity_id) for entry in entries]
        chunks = [stored] if isinstance(stored, bytes) else stored
        known = self._seen[block.kind].intersection(raw_ids)
        if len(known) == len(raw_ids):
            return
        if known:
            self._copy_entries(decompress_block(b"".join(chunks), block), entries)
            return
        with self._unfinished():
            for chunk in check_stored(chunks, block):
                self._write(chunk)
        self._seen[block.kind].update(raw_ids)
        lengths = [entry.raw_length for entry in entries]
        self._add_row(block.kind, block.codec, block.stored_length, block.checksum, raw_ids, lengths)

    def finish(self) -> PackSummary:
        """Write what is still open, the index and the footer. Nothing can be added after it."""
        self._check_open()
        with self._unfinished():
            for kind in Kind:
                self._close_block(kind)
            index = pack_index(self._rows, bytes(self._ids), self._lengths)
            footer = Footer(self._size, len(index), hashlib.sha256(index).digest())
            self._write(index)
            self._write(pack_footer(footer))
        self._state = "finished"
        objects, snapshots, commits = (len(self._seen[kind]) for kind in Kind)
        return PackSummary(self._digest.hexdigest(), self._size, objects, snapshots, commits)

    def _check_open(self) -> None:
        if self._state != "open":
            raise ValueError(f"the pack is {self._state}")

    @contextmanager
    def _unfinished(self) -> Iterator[None]:
        """Whatever ends this block early leaves a pack that must not be finished."""
        before, self._state = self._state, "broken"
        yield
        self._state = before

    def _write(self, data: bytes) -> None:
        self._out.write(data)
        self._digest.update(data)
        self._size += len(data)

    def _append(self, kind: Kind, raw_id: bytes, data: bytes, target: int) -> None:
        if self._open[kind].size + len(data) > target:
            self._close_block(kind)
        pending = self._open[kind]
        pending.ids.append(raw_id)
        pending.parts.append(data)
        pending.size += len(data)

    def _close_block(self, kind: Kind) -> None:
        pending = self._open[kind]
        if pending.parts:
            self._open[kind] = _Open()
            self._write_block(kind, pending.ids, pending.parts, SHARED_LEVEL)
        if kind is Kind.SNAPSHOT:
            self._base = None

    def _write_block(self, kind: Kind, raw_ids: list[bytes], parts: list[bytes], level: int) -> None:
        codec, stored = compress_block(b"".join(parts), level)
        with self._unfinished():
            self._write(stored)
        self._add_row(kind, codec, len(stored), zlib.crc32(stored), raw_ids, [len(part) for part in parts])

    def _add_row(
        self, kind: Kind, codec: Codec, stored: int, checksum: int, raw_ids: list[bytes], lengths: list[int]
    ) -> None:
        self._rows.append(BlockRow(stored, sum(lengths), len(lengths), checksum, kind, codec))
        self._ids += b"".join(raw_ids)
        self._lengths.extend(lengths)

    def _stream_object(self, raw_id: bytes, content: Iterator[bytes], length: int) -> None:
        codec, stored = compress_stream(content, length)
        start, checksum = self._size, 0
        for data in stored:
            self._write(data)
            checksum = zlib.crc32(data, checksum)
        self._add_row(Kind.OBJECT, codec, self._size - start, checksum, [raw_id], [length])

    def _copy_entries(self, raw: bytes, entries: Sequence[Entry]) -> None:
        parts = [(entry.entity_id, raw[entry.offset : entry.offset + entry.raw_length]) for entry in entries]
        kind = entries[0].kind
        if kind is Kind.SNAPSHOT:
            for snapshot in unpack_snapshots(parts):
                self.add_snapshot(snapshot)
        elif kind is Kind.COMMIT:
            for entity_id, part in parts:
                self.add_commit(parse_commit(part, f"commits[{entity_id}]"))
        else:
            for entity_id, part in parts:
                self.add_object(entity_id, part)


def _check_entries(block: Block, entries: Sequence[Entry]) -> None:
    offset = 0
    for entry in entries:
        if entry.kind is not block.kind or entry.offset != offset:
            raise ValueError("the entries are not all of the block's, in order")
        offset += entry.raw_length
    if not entries or offset != block.raw_length:
        raise ValueError("the entries are not all of the block's, in order")
