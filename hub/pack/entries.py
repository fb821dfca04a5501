"""The entries of an open pack, as a sequence over the bytes of its index."""

from __future__ import annotations

import bisect
import itertools
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

from hub.manifest import ID_BYTES
from hub.pack.format import Block, Entry

if TYPE_CHECKING:
    from collections.abc import Iterator


class Entries(Sequence[Entry]):
    """The entries of a pack, made when they are looked at: an index stays as small as its bytes."""

    def __init__(self, blocks: Sequence[Block], ids: memoryview, lengths: array[int]) -> None:
        """Take the parts of a checked index; `lengths` has type code Q."""
        self._blocks = blocks
        self._ids = ids
        self._lengths = lengths
        self._offsets = array("Q")
        for block in blocks:
            own = lengths[block.first_entry : block.first_entry + block.entry_count - 1]
            self._offsets.extend(itertools.accumulate(own, initial=0))

    def __len__(self) -> int:
        """Count the entries."""
        return len(self._lengths)

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> list[Entry]: ...
    def __getitem__(self, index: int | slice) -> Entry | list[Entry]:
        """Look at one entry, or at a list of them."""
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        block = self._blocks[bisect.bisect_right(self._blocks, number, key=_first_entry) - 1]
        return self._entry(block, number)

    def __iter__(self) -> Iterator[Entry]:
        """Walk the entries in file order."""
        for block in self._blocks:
            yield from self.of_block(block)

    def of_block(self, block: Block) -> Iterator[Entry]:
        """Walk the entries of one block in order."""
        for raw_id, offset, length in self.spans(block):
            yield Entry(block.kind, raw_id.hex(), block.number, offset, length)

    def spans(self, block: Block) -> Iterator[tuple[bytes, int, int]]:
        """Give (id as 32 bytes, first byte in the raw block, raw length) of the entries of one block in order."""
        first, end = block.first_entry, block.first_entry + block.entry_count
        ids = self._ids[first * ID_BYTES : end * ID_BYTES].tobytes()
        raw_ids = (ids[at : at + ID_BYTES] for at in range(0, len(ids), ID_BYTES))
        return zip(raw_ids, self._offsets[first:end], self._lengths[first:end], strict=True)

    def ids(self, block: Block) -> list[str]:
        """The ids of the entries of one block in order."""
        first, end = block.first_entry, block.first_entry + block.entry_count
        digits = self._ids[first * ID_BYTES : end * ID_BYTES].hex()
        return [digits[at : at + 2 * ID_BYTES] for at in range(0, len(digits), 2 * ID_BYTES)]

    def raw_id(self, number: int) -> bytes:
        """The id of entry `number` as 32 bytes."""
        return bytes(self._ids[number * ID_BYTES : (number + 1) * ID_BYTES])

    def _entry(self, block: Block, number: int) -> Entry:
        entity_id = self.raw_id(number).hex()
        return Entry(block.kind, entity_id, block.number, self._offsets[number], self._lengths[number])


def _first_entry(block: Block) -> int:
    return block.first_entry
