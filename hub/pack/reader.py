"""Reads an mpack by ranges: two open it, one gives an object.

Every byte that comes out has been checked: the block's checksum, its declared lengths, the hash of the object
or the rules and id of the record.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, BinaryIO, Protocol

from hub.errors import Invalid
from hub.pack.blocks import check_stored, raw_chunks
from hub.pack.content import check_content
from hub.pack.format import CHUNK, FOOTER_SIZE, Block, Entry, Kind, Limits
from hub.pack.index import parse_footer, parse_index
from hub.pack.snapshots import named_objects, unpack_snapshots
from hub.records import Commit, Snapshot, parse_commit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hub.pack.entries import Entries


class Source(Protocol):
    """Something that a pack can be read from by ranges: a file, or an object of a store."""

    @property
    def size(self) -> int:
        """Bytes in all."""
        ...

    def read_at(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset` on. Raises Invalid when there are fewer."""
        ...


class FileSource:
    """A seekable binary file as a Source. Not for several threads at once."""

    def __init__(self, file: BinaryIO) -> None:
        """Measure `file`, which stays the caller's to close."""
        self._file = file
        self.size = file.seek(0, io.SEEK_END)

    def read_at(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset` on. Raises Invalid when there are fewer."""
        self._file.seek(offset)
        data = self._file.read(length)
        if len(data) != length:
            raise Invalid("mpack", f"ends before byte {offset + length}")
        return data


class PackReader:
    """An open pack."""

    def __init__(self, source: Source, blocks: list[Block], entries: Entries) -> None:
        """Take a checked index; `open` reads and checks it."""
        self._source = source
        self.blocks = blocks
        """In file order."""
        self.entries = entries
        """In file order; entry n of the pack is `entries[n]`."""
        self._held: tuple[int, bytes] = (-1, b"")
        self._numbers: dict[Kind, dict[bytes, int]] = {}

    @classmethod
    def open(cls, source: Source, limits: Limits | None = None) -> PackReader:
        """Read footer and index, two ranges, and check them. Raises Invalid, or TooLarge for the limits."""
        at = max(source.size - FOOTER_SIZE, 0)
        footer = parse_footer(source.read_at(at, source.size - at), source.size)
        index = source.read_at(footer.index_offset, footer.index_length)
        return cls(source, *parse_index(index, footer, limits or Limits()))

    def find(self, kind: Kind, entity_id: str) -> Entry | None:
        """The entry of an id; None when the pack has none. The first call for a kind walks the index."""
        if kind not in self._numbers:
            self._numbers[kind] = {
                self.entries.raw_id(number): number
                for block in self.blocks
                if block.kind is kind
                for number in range(block.first_entry, block.first_entry + block.entry_count)
            }
        number = self._numbers[kind].get(bytes.fromhex(entity_id))
        return None if number is None else self.entries[number]

    def stored_chunks(self, block: Block) -> Iterator[bytes]:
        """The stored bytes of a block, a MiB at a time, unchecked; what `PackWriter.copy_block` takes."""
        end = block.offset + block.stored_length
        for offset in range(block.offset, end, CHUNK):
            yield self._source.read_at(offset, min(CHUNK, end - offset))

    def raw_block(self, block: Block) -> bytes:
        """A decompressed block. The last one is kept, for its neighbours' sake."""
        if self._held[0] != block.number:
            self._held = (-1, b"")
            chunks = check_stored(self.stored_chunks(block), block)
            self._held = (block.number, b"".join(raw_chunks(chunks, block)))
        return self._held[1]

    def chunks(self, entry: Entry) -> Iterator[bytes]:
        """The content of an object in pieces of at most about a MiB, in bounded memory.

        The hash is known at the end only: Invalid may come after all pieces.
        """
        block = self.blocks[entry.block]
        if block.entry_count > 1:
            content: Iterable[bytes] = [self.raw_block(block)[entry.offset : entry.offset + entry.raw_length]]
        else:
            content = raw_chunks(check_stored(self.stored_chunks(block), block), block)
        return check_content(content, entry.entity_id) if entry.kind is Kind.OBJECT else iter(content)

    def read(self, entry: Entry) -> bytes:
        """The raw bytes of an entry as one: one ranged read, one decompression, one slice. Raises Invalid.

        Of a commit, that is its record; a snapshot may be the changes to the one before it: see `snapshots`.
        """
        return b"".join(self.chunks(entry))

    def iter_objects(self) -> Iterator[tuple[Entry, Iterator[bytes]]]:
        """Every object with its content, in file order, each block read once.

        The content of one object must be read before the next is asked for; it may be left unread.
        """
        for block in self._of_kind(Kind.OBJECT):
            for entry in self.entries.of_block(block):
                yield entry, self.chunks(entry)

    def commits(self) -> Iterator[Commit]:
        """Every commit, checked, in file order. Raises Invalid."""
        for block in self._of_kind(Kind.COMMIT):
            yield from block_commits(self.raw_block(block), self.entries.of_block(block))

    def snapshots(self, *, checked: bool = False) -> Iterator[Snapshot]:
        """Every snapshot, in file order, checked unless they have been before. Raises Invalid."""
        for block in self._of_kind(Kind.SNAPSHOT):
            yield from block_snapshots(self.raw_block(block), self.entries.of_block(block), checked=checked)

    def ids(self, kind: Kind) -> list[str]:
        """The ids of a kind, in file order."""
        return [entity_id for block in self._of_kind(kind) for entity_id in self.entries.ids(block)]

    def named_objects(self) -> set[str]:
        """Every object that a snapshot of the pack names. For a pack whose snapshots have been checked."""
        named: set[str] = set()
        for block in self._of_kind(Kind.SNAPSHOT):
            raw = self.raw_block(block)
            named |= named_objects(raw[at : at + length] for _, at, length in self.entries.spans(block))
        return named

    def _of_kind(self, kind: Kind) -> Iterator[Block]:
        return (block for block in self.blocks if block.kind is kind)


def block_commits(raw: bytes, entries: Iterable[Entry]) -> Iterator[Commit]:
    """The commits of one raw block. Raises Invalid, also for an entry that holds another commit."""
    for entry in entries:
        field = f"commits[{entry.entity_id}]"
        commit = parse_commit(raw[entry.offset : entry.offset + entry.raw_length], field)
        if commit.commit_id != entry.entity_id:
            raise Invalid(field, f"holds the commit {commit.commit_id}")
        yield commit


def block_snapshots(raw: bytes, entries: Iterable[Entry], *, checked: bool = False) -> Iterator[Snapshot]:
    """The snapshots of one raw block, checked unless they have been before. Raises Invalid."""
    pairs = ((entry.entity_id, raw[entry.offset : entry.offset + entry.raw_length]) for entry in entries)
    return unpack_snapshots(pairs, checked=checked)
