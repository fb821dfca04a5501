"""What an mpack is made of: constants, sizes and the parts of its index.

The normative text is docs/reference/mpack.md; the names here are the names there.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

VERSION = 1
HEADER = b"\x8fMPACK\r\n" + VERSION.to_bytes(4, "little") + bytes(4)
FOOTER_MAGIC = b"\r\nKCAPM\x8f"
FOOTER_SIZE = 64

CHUNK = 1024 * 1024
"""Bytes read, hashed or handed on at a time."""
MAX_OBJECT_BLOCK = 1024 * 1024
"""Raw bytes of a block that several objects share; a larger object has a block of its own."""
MAX_COMMIT_BLOCK = 8 * 1024 * 1024
"""Raw bytes of a block that several commits share."""
MAX_SNAPSHOT_BLOCK = 64 * 1024 * 1024
"""Raw bytes of a block that several snapshots share; large: the changes to a large manifest can follow it."""
MAX_WINDOW = 8 * 1024 * 1024
"""Window of a zstd frame, the memory that decompressing takes."""


class Kind(enum.IntEnum):
    """What an entry is. A block holds entries of one kind."""

    OBJECT = 1
    SNAPSHOT = 2
    COMMIT = 3


class Codec(enum.IntEnum):
    """How a block is stored."""

    RAW = 0
    ZSTD = 1


MAX_SHARED = {
    Kind.OBJECT: MAX_OBJECT_BLOCK,
    Kind.SNAPSHOT: MAX_SNAPSHOT_BLOCK,
    Kind.COMMIT: MAX_COMMIT_BLOCK,
}
"""Raw bytes of a block with more than one entry."""


class Block(NamedTuple):
    """A stretch of the file that is read and decompressed as one."""

    number: int
    """Position in the file, from 0."""
    offset: int
    """First byte in the file."""
    stored_length: int
    raw_length: int
    """Bytes after decompression: the sum of its entries' raw lengths."""
    codec: Codec
    checksum: int
    """CRC-32 of the stored bytes."""
    kind: Kind = Kind.OBJECT
    first_entry: int = 0
    """Number of its first entry; its others follow."""
    entry_count: int = 0


class Entry(NamedTuple):
    """An object, snapshot or commit: where it lies."""

    kind: Kind
    entity_id: str
    block: int
    """Number of its block."""
    offset: int
    """First byte in the raw block."""
    raw_length: int


@dataclass(frozen=True, slots=True)
class Limits:
    """What a verifier accepts at most. Sizes are bytes."""

    max_file: int = 4 * 1024**3
    max_entries: int = 2_000_000
    max_raw_total: int = 16 * 1024**3
    """Sum of the raw lengths of all blocks: the work that a small file can ask for."""
    max_object: int = 1024**3
    max_record: int = 64 * 1024**2
    """Raw bytes of one snapshot or commit."""
    max_rows: int = 50_000_000
    """Sum of the path counts of all snapshots, whether written out or as changes."""


@dataclass(frozen=True, slots=True)
class PackSummary:
    """What a finished pack is."""

    mpack_id: str
    """SHA-256 of the file, its name everywhere."""
    size: int
    objects: int
    snapshots: int
    commits: int


def stored_limit(raw_length: int, codec: Codec) -> int:
    """The most bytes that a block of `raw_length` may take: what zstd needs for incompressible ones."""
    return raw_length if codec is Codec.RAW else raw_length + raw_length // 256 + 64
