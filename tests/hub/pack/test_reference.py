"""A second reader, written from docs/reference/mpack.md alone: what the page says is enough, and true."""

from __future__ import annotations

import hashlib
import struct
import zlib

import msgpack
import zstandard
from hypothesis import given

from hub.records import Commit, Snapshot, object_id
from tests.hub.pack.calls import Call, calls, expected, written


def read_rows(raw: bytes, at: int, *, ids: bool) -> tuple[list[str], list[str], int]:
    """Paths, ids and the end of «rows», or of «removed»."""
    count, length = struct.unpack_from("<II", raw, at)
    paths = raw[at + 8 : at + 8 + length].decode().split("\0")[:count]
    at += 8 + length
    found = [raw[at + 32 * n : at + 32 * (n + 1)].hex() for n in range(count)] if ids else []
    return paths, found, at + 32 * len(found)


def read_snapshots(entries: list[tuple[str, bytes]]) -> dict[str, tuple[str, dict[str, str]]]:
    """Id → created_at and manifest, of one block."""
    found: dict[str, tuple[str, dict[str, str]]] = {}
    manifest: dict[str, str] = {}
    for entity_id, raw in entries:
        form, length = raw[0], raw[1]
        paths, ids, end = read_rows(raw, 2 + length, ids=True)
        manifest = dict(manifest) if form else {}
        manifest.update(zip(paths, ids, strict=True))
        if form:
            removed, _, end = read_rows(raw, end, ids=False)
            manifest = {path: manifest[path] for path in manifest if path not in removed}
        assert end == len(raw)
        found[entity_id] = (raw[2 : 2 + length].decode("ascii"), manifest)
    return found


def read_pack(data: bytes) -> list[tuple[int, list[tuple[str, bytes]]]]:
    """Kind and entries (id, raw bytes) of every block."""
    assert data[:16] == bytes.fromhex("8f4d5041434b0d0a0100000000000000")
    offset, length, digest, version, seal = struct.unpack_from("<QQ32sII", data, len(data) - 64)
    assert (version, seal, data[-8:]) == (1, zlib.crc32(data[-64:-12]), b"\r\nKCAPM\x8f")
    index = data[offset : offset + length]
    assert offset + length == len(data) - 64
    assert hashlib.sha256(index).digest() == digest
    block_count, entry_count = struct.unpack_from("<II", index)
    assert length == 8 + 32 * block_count + 40 * entry_count
    ids_at = 8 + 32 * block_count
    raw_lengths = struct.unpack_from(f"<{entry_count}Q", index, ids_at + 32 * entry_count)
    blocks, at, number = [], 16, 0
    for row in struct.iter_unpack("<QQIIBB6s", index[8:ids_at]):
        stored_length, raw_length, count, checksum, kind, codec, reserved = row
        stored = data[at : at + stored_length]
        assert zlib.crc32(stored) == checksum
        assert reserved == bytes(6)
        raw = zstandard.decompress(stored) if codec else stored
        assert len(raw) == raw_length
        entries, start = [], 0
        for n in range(number, number + count):
            entity_id = index[ids_at + 32 * n : ids_at + 32 * (n + 1)].hex()
            entries.append((entity_id, raw[start : start + raw_lengths[n]]))
            start += raw_lengths[n]
        assert start == raw_length
        blocks.append((kind, entries))
        at, number = at + stored_length, number + count
    assert (at, number) == (offset, entry_count)
    return blocks


@given(calls())
def test_a_reader_made_from_the_reference_reads_every_pack(made: list[Call]) -> None:
    blocks = read_pack(written(made)[0])
    of_kind = {kind: [entries for found, entries in blocks if found == kind] for kind in (1, 2, 3)}
    objects = dict(pair for entries in of_kind[1] for pair in entries)
    assert objects == {object_id(content): content for content in expected(made, bytes)}
    snapshots = {key: value for entries in of_kind[2] for key, value in read_snapshots(entries).items()}
    assert snapshots == {one.snapshot_id: (one.created_at, one.manifest) for one in expected(made, Snapshot)}
    commits = {entity_id: msgpack.unpackb(raw) for entries in of_kind[3] for entity_id, raw in entries}
    assert {key: value["commit_id"] for key, value in commits.items()} == {key: key for key in commits}
    assert list(commits) == [one.commit_id for one in expected(made, Commit)]
