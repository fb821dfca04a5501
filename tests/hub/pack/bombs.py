"""Small packs that ask for much, every seal right."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from hub.manifest import pack_rows
from hub.pack.blocks import compress_block
from hub.pack.format import HEADER, Codec, Kind
from hub.records import object_id, snapshot_id
from tests.hub.pack import frames
from tests.hub.pack.build import Parts, noise, seal, write

MIB = 1 << 20


def single(
    kind: Kind, raw_length: int, stored: bytes, codec: Codec = Codec.ZSTD, entity_id: bytes = bytes(32)
) -> bytes:
    """A pack of one entry, whatever is said of it."""
    parts = Parts.of(write([noise(50)])[0])
    parts.ids, parts.lengths = [entity_id], [raw_length]
    parts.put(0, stored, raw_length=raw_length, kind=kind, codec=codec)
    return parts.seal()


def chain_bomb() -> bytes:
    """One manifest of 50,000 paths, then thousands of snapshots of a few bytes each, which all stand for
    it.
    """
    manifest = {f"{n:05}": object_id(b"x") for n in range(50_000)}
    parts = [b"\x00\x00" + pack_rows(manifest)] + [b"\x01\x00" + bytes(8) + bytes(8)] * 5000
    raw = b"".join(parts)
    made = Parts.of(write([noise(50)])[0])
    made.ids = [bytes.fromhex(snapshot_id(manifest)), *(n.to_bytes(32, "big") for n in range(5000))]
    made.lengths = [len(part) for part in parts]
    codec, stored = compress_block(raw, 3)
    made.put(0, stored, raw_length=len(raw), entry_count=len(parts), kind=Kind.SNAPSHOT, codec=codec)
    return made.seal()


def record_bomb() -> bytes:
    """A commit of arrays that each promise a million elements."""
    return b"\x81" + b"\xa6author" + b"\xdd\x00\x0f\x42\x40" * 900


def bombs() -> Iterator[tuple[str, bytes]]:
    """Small packs that ask for much."""
    yield "honest zeros", single(Kind.OBJECT, 32 * MIB, frames.frame(32 * MIB, *frames.zeros(32 * MIB)))
    yield "more than declared", single(Kind.OBJECT, 2 * MIB, frames.frame(2 * MIB, *frames.zeros(1 << 30))[:9000])
    yield "frame declares 4 GiB", single(Kind.OBJECT, 1000, frames.frame(2**32 - 1, *frames.zeros(1000)))
    yield "window of 1 GiB", single(Kind.OBJECT, 1000, frames.windowed(1000, 30, *frames.zeros(1000)))
    yield "single segment of 32 MiB", single(Kind.SNAPSHOT, 32 * MIB, frames.frame(32 * MIB, *frames.zeros(32 * MIB)))
    yield "object of 2**63", single(Kind.OBJECT, 2**63, b"x" * 40)
    yield "raw of 2**40", single(Kind.OBJECT, 2**40, b"x" * 40, Codec.RAW)
    zeros = frames.windowed(32 * MIB, 20, *frames.zeros(32 * MIB))
    yield "commit of zeros", single(Kind.COMMIT, 32 * MIB, zeros)
    yield "snapshot of zeros", single(Kind.SNAPSHOT, 32 * MIB, zeros)
    yield "record of arrays", single(Kind.COMMIT, len(record_bomb()), record_bomb(), Codec.RAW)
    rows = b"\x00\x00" + struct.pack("<II", 2**32 - 1, 2**32 - 1) + bytes(50)
    yield "manifest of 2**32 rows", single(Kind.SNAPSHOT, len(rows), rows, Codec.RAW)
    yield "index of 2**32 blocks", seal(HEADER, struct.pack("<II", 2**32 - 1, 0))
    yield "chain of snapshots", chain_bomb()
