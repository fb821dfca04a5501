"""Where objects lie, by the index alone, and their bytes by ranged reads."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.orm import Session

from hub.errors import CorruptMpack, FetchNotIndexed, Invalid
from hub.keys import archive_key
from hub.models.sets import bites
from hub.pack.blocks import check_stored, decompress_block, raw_chunks
from hub.pack.format import Block, Codec, Entry, Kind
from storage import Store

RUN_BYTES = 4 * 1024 * 1024
"""Neighbouring blocks are fetched together up to this size."""
PIECE_BYTES = 256 * 1024
"""A larger block is read in pieces: memory that is fresh for each costs more than the copying."""
KEPT_BYTES = 32 * 1024 * 1024
"""Fetched blocks that are kept for the next object, in bytes; and as much of decompressed ones."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one object lies: pack, block, and its entry there."""

    mpack_id: str
    block: Block
    entry: Entry


def locate_objects(session: Session, repository_id: UUID, object_ids: Sequence[str]) -> list[Place]:
    """A place for each object, in the order given.

    Raises FetchNotIndexed with the number of objects that the index does not know: what is built from the answer is
    whole or not built.
    """
    found: dict[str, Place] = {}
    blocks: dict[tuple[bytes, int], tuple[str, Block]] = {}
    for bite in bites(object_ids):
        rows = session.execute(PLACES, {"repository_id": repository_id, "ids": bite, "kind": int(Kind.OBJECT)})
        for row in rows:
            object_id = bytes(row.entity_id).hex()
            key = (bytes(row.mpack_id), row.block)
            # One Block for all objects in it: there may be a million places.
            mpack_id, block = blocks.get(key) or blocks.setdefault(key, (key[0].hex(), _block(row)))
            found[object_id] = Place(
                mpack_id, block, Entry(Kind.OBJECT, object_id, row.block, row.raw_offset, row.raw_length)
            )
    missing = len(object_ids) - len(found)
    if missing:
        raise FetchNotIndexed(missing)
    return [found[object_id] for object_id in object_ids]


def _block(row: Any) -> Block:
    return Block(
        number=row.block,
        offset=row.stored_offset,
        stored_length=row.stored_length,
        raw_length=row.block_raw_length,
        codec=Codec(row.codec),
        checksum=row.checksum,
        kind=Kind.OBJECT,
        entry_count=row.entries,
    )


def in_file_order(places: Iterable[Place]) -> list[Place]:
    """The places as they lie in the packs: read so, each block comes once and nothing needs to be kept."""
    return sorted(places, key=lambda place: (place.mpack_id, place.block.offset, place.entry.offset))


class BlockReader:
    """Reads blocks of a repository's packs, neighbours in one request, and keeps the last ones for a while.

    `keep`: bytes of blocks that are kept, as stored and again decompressed; 0 keeps what the last object needed.
    """

    def __init__(
        self, archive: Store, repository_id: UUID, places: Iterable[Place], *, keep: int | None = None
    ) -> None:
        self._archive = archive
        self._repository_id = repository_id
        self._keep = KEPT_BYTES if keep is None else keep
        self._run_of = _runs(places)
        self._kept: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._kept_bytes = 0
        self._raw: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._raw_bytes = 0

    def content(self, place: Place) -> bytes:
        """The object's bytes. Raises CorruptMpack for a damaged block."""
        return b"".join(self.chunks(place))

    def chunks(self, place: Place) -> Iterator[bytes]:
        """The object's bytes, piece by piece where it has a block of its own, however large. Raises CorruptMpack."""
        block = place.block
        with naming(place.mpack_id):
            if block.entry_count > 1:
                yield self._raw_block(place)[place.entry.offset : place.entry.offset + place.entry.raw_length]
                return
            stored = self.stream(place) if block.stored_length > RUN_BYTES else [self.stored(place)]
            yield from raw_chunks(check_stored(stored, block), block)

    def stored(self, place: Place) -> bytes:
        """The block of the object as it is stored."""
        key = (place.mpack_id, place.block.number)
        if key not in self._kept:
            self._fetch(place)
        self._kept.move_to_end(key)
        return self._kept[key]

    def stream(self, place: Place) -> Iterator[bytes]:
        """The block as it is stored, piece by piece, however large."""
        block = place.block
        with self._archive.open_range(self._key(place.mpack_id), block.offset, block.stored_length) as body:
            while piece := body.read(PIECE_BYTES):
                yield piece

    def _raw_block(self, place: Place) -> bytes:
        key = (place.mpack_id, place.block.number)
        if key not in self._raw:
            self._raw[key] = decompress_block(self.stored(place), place.block)
            self._raw_bytes += place.block.raw_length
        self._raw.move_to_end(key)
        while self._raw_bytes > self._keep and len(self._raw) > 1:
            _, dropped = self._raw.popitem(last=False)
            self._raw_bytes -= len(dropped)
        return self._raw[key]

    def _fetch(self, place: Place) -> None:
        run = self._run_of[place.mpack_id, place.block.number]
        first, last = run[0], run[-1]
        length = last.offset + last.stored_length - first.offset
        data = self._archive.get_range(self._key(place.mpack_id), first.offset, length)
        for block in run:
            start = block.offset - first.offset
            self._kept_bytes += block.stored_length - len(self._kept.pop((place.mpack_id, block.number), b""))
            self._kept[place.mpack_id, block.number] = data[start : start + block.stored_length]
        while self._kept_bytes > self._keep and len(self._kept) > len(run):
            _, dropped = self._kept.popitem(last=False)
            self._kept_bytes -= len(dropped)

    def _key(self, mpack_id: str) -> str:
        return archive_key(self._repository_id, mpack_id)


@contextmanager
def naming(mpack_id: str) -> Iterator[None]:
    """Name the pack in which a block was found to be damaged: Invalid becomes CorruptMpack."""
    try:
        yield
    except Invalid as error:
        raise CorruptMpack(mpack_id, error.sentence) from error


def _runs(places: Iterable[Place]) -> dict[tuple[str, int], list[Block]]:
    """Each block's run: wanted blocks that touch in the file, together at most RUN_BYTES."""
    packs: dict[str, dict[int, Block]] = defaultdict(dict)
    for place in places:
        packs[place.mpack_id][place.block.number] = place.block
    run_of: dict[tuple[str, int], list[Block]] = {}
    for mpack_id, blocks in packs.items():
        run: list[Block] = []
        for block in sorted(blocks.values(), key=lambda item: item.offset):
            touches = bool(run) and run[-1].offset + run[-1].stored_length == block.offset
            if not touches or block.offset + block.stored_length - run[0].offset > RUN_BYTES:
                run = []
            run.append(block)
            run_of[mpack_id, block.number] = run
    return run_of


PLACES = text("""
SELECT DISTINCT ON (i.entity_id) i.entity_id, i.mpack_id, i.block, i.raw_offset, i.raw_length,
    b.stored_offset, b.stored_length, b.raw_length AS block_raw_length, b.codec, b.checksum, b.entries
FROM hub.mpack_index i
JOIN hub.mpack_block b USING (repository_id, mpack_id, block)
WHERE i.repository_id = :repository_id AND i.kind = :kind AND i.entity_id = ANY(:ids)
ORDER BY i.entity_id, i.mpack_id
""")
