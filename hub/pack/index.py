"""The index at the end of an mpack and the footer that finds it: written, and read without trust.

Offsets are nowhere in the index: blocks follow each other in the file, entries in their block, so a length
says all, and neither a gap nor an overlap can be written down.
"""

from __future__ import annotations

import hashlib
import itertools
import struct
import sys
import zlib
from array import array
from typing import TYPE_CHECKING, NamedTuple

from hub.errors import Invalid, TooLarge
from hub.manifest import ID_BYTES
from hub.pack.entries import Entries
from hub.pack.format import (
    FOOTER_MAGIC,
    FOOTER_SIZE,
    HEADER,
    MAX_SHARED,
    VERSION,
    Block,
    Codec,
    Kind,
    Limits,
    stored_limit,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_COUNTS = struct.Struct("<II")
_BLOCK = struct.Struct("<QQIIBB6x")
_FOOTER = struct.Struct("<QQ32sI")
_SEAL = struct.Struct("<I8s")
_KINDS = frozenset(map(int, Kind))
_CODECS = frozenset(map(int, Codec))
_EVERY_ZERO = bytes(6)


class BlockRow(NamedTuple):
    """One row of the block table, in the order of its bytes."""

    stored_length: int
    raw_length: int
    entry_count: int
    checksum: int
    kind: int
    codec: int


class Footer(NamedTuple):
    """Where the index lies, and its SHA-256."""

    index_offset: int
    index_length: int
    index_digest: bytes


def pack_index(rows: Sequence[BlockRow], ids: bytes, lengths: array[int]) -> bytes:
    """The bytes of an index: counts, block table, ids, raw lengths. `lengths` has type code Q."""
    table = b"".join(_BLOCK.pack(*row) for row in rows)
    return _COUNTS.pack(len(rows), len(lengths)) + table + ids + _little(lengths).tobytes()


def pack_footer(footer: Footer) -> bytes:
    """The last FOOTER_SIZE bytes of a pack."""
    body = _FOOTER.pack(*footer, VERSION)
    return body + _SEAL.pack(zlib.crc32(body), FOOTER_MAGIC)


def parse_footer(raw: bytes, size: int) -> Footer:
    """The footer in the last bytes of a file of `size` bytes. Raises Invalid."""
    if len(raw) != FOOTER_SIZE or size < len(HEADER) + _COUNTS.size + FOOTER_SIZE:
        raise Invalid("mpack", f"is too short to be an mpack: {size} bytes")
    seal, magic = _SEAL.unpack_from(raw, _FOOTER.size)
    if magic != FOOTER_MAGIC:
        raise Invalid(
            "mpack.footer",
            "is not that of an mpack: another file, cut short, or with bytes after its end",
        )
    if seal != zlib.crc32(raw[: _FOOTER.size]):
        raise Invalid("mpack.footer", "is damaged: its checksum differs")
    offset, length, digest, version = _FOOTER.unpack_from(raw)
    if version != VERSION:
        raise Invalid("mpack.footer", f"is of version {version}, only {VERSION} is known")
    if offset < len(HEADER) or offset + length != size - FOOTER_SIZE:
        raise Invalid("mpack.footer", "places the index elsewhere than right before the footer")
    return Footer(offset, length, digest)


def parse_index(raw: bytes, footer: Footer, limits: Limits) -> tuple[list[Block], Entries]:
    """The blocks and entries of an index whose place in the file `footer` tells.

    Every length is checked against the file, against its neighbours and against `limits`. Raises Invalid, or
    TooLarge for the limits.
    """
    if hashlib.sha256(raw).digest() != footer.index_digest:
        raise Invalid("mpack.index", "is damaged: its SHA-256 differs from the footer's")
    if len(raw) < _COUNTS.size:
        raise Invalid("mpack.index", "ends inside its counts")
    block_count, entry_count = _COUNTS.unpack_from(raw)
    if entry_count > limits.max_entries:
        raise TooLarge(f"the mpack has {entry_count} entries; at most {limits.max_entries} are allowed")
    ids_at = _COUNTS.size + block_count * _BLOCK.size
    lengths_at = ids_at + entry_count * ID_BYTES
    if lengths_at + entry_count * 8 != len(raw):
        raise Invalid("mpack.index", f"of {len(raw)} bytes cannot hold {block_count} blocks and {entry_count} entries")
    view = memoryview(raw)
    lengths = array("Q")
    lengths.frombytes(view[lengths_at:])
    lengths = _little(lengths)
    blocks = _parse_blocks(view[_COUNTS.size : ids_at], footer.index_offset, lengths, limits)
    ids = view[ids_at:lengths_at]
    _refuse_duplicates(blocks, ids)
    return blocks, Entries(blocks, ids, lengths)


def _parse_blocks(table: memoryview, end: int, lengths: array[int], limits: Limits) -> list[Block]:
    blocks: list[Block] = []
    offset, first, total = len(HEADER), 0, 0
    for number, row in enumerate(map(BlockRow._make, _BLOCK.iter_unpack(table))):
        field = f"mpack.blocks[{number}]"
        if row.kind not in _KINDS or row.codec not in _CODECS:
            raise Invalid(field, f"is of unknown kind {row.kind} or codec {row.codec}")
        if bytes(table[(number + 1) * _BLOCK.size - len(_EVERY_ZERO) : (number + 1) * _BLOCK.size]) != _EVERY_ZERO:
            raise Invalid(field, "has reserved bytes that are not zero")
        block = Block(
            number, offset, row.stored_length, row.raw_length, Codec(row.codec), row.checksum, Kind(row.kind),
            first, row.entry_count,
        )  # fmt: skip
        _check_block(block, lengths, limits, field)
        offset += block.stored_length
        first += block.entry_count
        total += block.raw_length
        if offset > end:
            raise Invalid(field, "reaches beyond the begin of the index")
        if total > limits.max_raw_total:
            raise TooLarge(f"the mpack holds more than {limits.max_raw_total} bytes after decompression")
        blocks.append(block)
    if offset != end:
        raise Invalid("mpack.index", f"leaves {end - offset} bytes before the index to no block")
    if first != len(lengths):
        raise Invalid("mpack.index", f"has {len(lengths)} entries, its blocks claim {first}")
    return blocks


def _check_block(block: Block, lengths: array[int], limits: Limits, field: str) -> None:
    if not block.entry_count or block.first_entry + block.entry_count > len(lengths):
        raise Invalid(field, f"claims {block.entry_count} entries, from number {block.first_entry} of {len(lengths)}")
    own = lengths[block.first_entry : block.first_entry + block.entry_count]
    if min(own) == 0:
        raise Invalid(field, "has an entry of no bytes; the empty object is never stored")
    if sum(own) != block.raw_length:
        raise Invalid(field, f"declares {block.raw_length} raw bytes, its entries {sum(own)}")
    if block.entry_count > 1 and block.raw_length > MAX_SHARED[block.kind]:
        raise Invalid(field, f"has several entries in {block.raw_length} raw bytes, more than {MAX_SHARED[block.kind]}")
    most = limits.max_object if block.kind is Kind.OBJECT else limits.max_record
    if max(own) > most:
        raise TooLarge(f"{field}: a {block.kind.name.lower()} of {max(own)} bytes; at most {most} are allowed")
    if block.codec is Codec.RAW and block.stored_length != block.raw_length:
        raise Invalid(field, f"is stored raw, but {block.stored_length} bytes are not its {block.raw_length}")
    if not 0 < block.stored_length <= stored_limit(block.raw_length, block.codec):
        raise Invalid(field, f"takes {block.stored_length} bytes for {block.raw_length} raw ones")


def _refuse_duplicates(blocks: Sequence[Block], ids: memoryview) -> None:
    """Refuse an id that one kind has twice.

    By the first byte of the id, so that the set in memory is a 256th of the index.
    """
    for kind in Kind:
        buckets = [array("I") for _ in range(256)]
        for block in blocks:
            if block.kind is kind:
                numbers = range(block.first_entry, block.first_entry + block.entry_count)
                firsts = ids[block.first_entry * ID_BYTES : numbers.stop * ID_BYTES : ID_BYTES]
                for number, byte in zip(numbers, firsts, strict=True):
                    buckets[byte].append(number)
        for bucket in buckets:
            seen = sorted(ids[number * ID_BYTES : (number + 1) * ID_BYTES].tobytes() for number in bucket)
            for one, other in itertools.pairwise(seen):
                if one == other:
                    raise Invalid("mpack.index", f"has the {kind.name.lower()} {one.hex()} twice")


def _little(lengths: array[int]) -> array[int]:
    """The same array with the bytes of the file's order, or back."""
    if sys.byteorder == "big":
        lengths = lengths[:]
        lengths.byteswap()
    return lengths
