"""What the tests of the pack are made of: contents, histories, packs, and packs taken apart."""

from __future__ import annotations

import functools
import hashlib
import io
import random
import zlib
from array import array
from collections.abc import Iterable
from dataclasses import dataclass

import pytest
from hypothesis import strategies as st

from hub.errors import Invalid
from hub.manifest import check_manifest
from hub.pack.format import FOOTER_SIZE, HEADER, Codec, Kind, Limits, PackSummary
from hub.pack.index import BlockRow, Footer, pack_footer, pack_index, parse_footer
from hub.pack.reader import FileSource, PackReader
from hub.pack.verify import verify_pack
from hub.pack.writer import PackWriter
from hub.records import (
    Commit,
    Snapshot,
    commit_record,
    object_id,
    parse_commit,
    parse_snapshot,
    snapshot_record,
)

NOON = "2026-03-24T12:00:00+00:00"
LIMITS = Limits(max_file=1 << 26, max_entries=10_000, max_raw_total=1 << 26, max_object=1 << 25, max_rows=100_000)


@functools.lru_cache(maxsize=64)
def noise(length: int, seed: int = 0) -> bytes:
    """Bytes that do not compress, always the same."""
    return random.Random(seed).randbytes(length)


@functools.lru_cache(maxsize=64)
def text(length: int, seed: int = 0) -> bytes:
    """Bytes that compress well, always the same."""
    chooser = random.Random(seed)
    words = [chooser.randbytes(4).hex() for _ in range(40)]
    return " ".join(chooser.choices(words, k=length // 9 + 1)).encode()[:length]


def snapshot(manifest: dict[str, str]) -> Snapshot:
    return parse_snapshot(snapshot_record(manifest, NOON))


def commit(of: Snapshot, message: str = "m", parents: tuple[str, ...] = ()) -> Commit:
    return parse_commit(commit_record(snapshot_id=of.snapshot_id, message=message, committed_at=NOON, parents=parents))


def write(
    objects: Iterable[bytes] = (), snapshots: Iterable[Snapshot] = (), commits: Iterable[Commit] = ()
) -> tuple[bytes, PackSummary]:
    out = io.BytesIO()
    writer = PackWriter(out)
    for content in objects:
        writer.add_object(object_id(content), content)
    for one in snapshots:
        writer.add_snapshot(one)
    for other in commits:
        writer.add_commit(other)
    summary = writer.finish()
    return out.getvalue(), summary


def verify(data: bytes, limits: Limits = LIMITS, expect_id: str | None = None) -> PackReader:
    return verify_pack(io.BytesIO(data), limits=limits, expect_id=expect_id)


def sample() -> bytes:
    """A pack with every kind, both codecs, shared blocks, changes and an object alone in its block."""
    contents = [text(3000, 1), text(700, 2), noise(200, 3), b"abcd" * (1 << 18) + b"large"]
    manifest = {f"d/{number}": object_id(content) for number, content in enumerate(contents)}
    first = snapshot({**manifest, **{f"e/{number}": object_id(b"x") for number in range(20)}})
    second = snapshot({**first.manifest, "d/0": object_id(b"y"), "new": object_id(b"z")})
    root = commit(first)
    return write([*contents, b"x"], [first, second], [root, commit(second, "n", (root.commit_id,))])[0]


@dataclass
class Parts:
    """A pack taken apart; `seal` puts it together with right lengths of its own, checksums and digest."""

    stored: list[bytes]
    rows: list[BlockRow]
    ids: list[bytes]
    lengths: list[int]

    @classmethod
    def of(cls, data: bytes) -> Parts:
        reader = PackReader.open(FileSource(io.BytesIO(data)))
        return cls(
            [b"".join(reader.stored_chunks(block)) for block in reader.blocks],
            [
                BlockRow(
                    block.stored_length,
                    block.raw_length,
                    block.entry_count,
                    block.checksum,
                    block.kind,
                    block.codec,
                )
                for block in reader.blocks
            ],
            [bytes.fromhex(entry.entity_id) for entry in reader.entries],
            [entry.raw_length for entry in reader.entries],
        )

    def put(self, number: int, stored: bytes, **changes: int) -> None:
        """Replace the stored bytes of a block, its length and checksum with them."""
        self.stored[number] = stored
        row = self.rows[number]._replace(stored_length=len(stored), checksum=zlib.crc32(stored))
        self.rows[number] = row._replace(**changes)

    def index(self) -> bytes:
        return pack_index(self.rows, b"".join(self.ids), array("Q", self.lengths))

    def seal(self) -> bytes:
        return seal(HEADER + b"".join(self.stored), self.index())


def seal(body: bytes, index: bytes) -> bytes:
    """A pack of header and blocks, and an index, under a right footer."""
    return body + index + pack_footer(Footer(len(body), len(index), hashlib.sha256(index).digest()))


def split(data: bytes) -> tuple[bytes, bytes]:
    """Header with blocks, and index, of a pack."""
    footer = parse_footer(data[-FOOTER_SIZE:], len(data))
    return data[: footer.index_offset], data[footer.index_offset : -FOOTER_SIZE]


def block_of(parts: Parts, kind: Kind, *, shared: bool = True) -> int:
    """The number of the first block of a kind with several entries, or with one."""
    return next(n for n, row in enumerate(parts.rows) if row.kind == kind and (row.entry_count > 1) is shared)


def refusal(data: bytes) -> str:
    """The sentence with which a pack is refused as invalid."""
    with pytest.raises(Invalid) as caught:
        verify(data)
    return caught.value.sentence


def raw_pack(kind: Kind, ids: list[bytes], parts: list[bytes]) -> bytes:
    """A pack of one raw block with these entries, all seals right."""
    made = Parts.of(write([noise(50)])[0])
    made.ids, made.lengths = ids, [len(part) for part in parts]
    raw = b"".join(parts)
    made.put(0, raw, raw_length=len(raw), kind=kind, codec=Codec.RAW, entry_count=len(parts))
    return made.seal()


contents = st.one_of(
    st.binary(min_size=1, max_size=200),
    st.builds(text, st.integers(1, 5000), st.integers(0, 5)),
    st.builds(noise, st.sampled_from([1, 500, 1 << 20, (1 << 20) + 1]), st.just(0)),
)

_segment = st.text(st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1, max_size=8)


def _fits(manifest: dict[str, str]) -> bool:
    try:
        check_manifest(manifest, "manifest")
    except Invalid:
        return False
    return True


def manifests() -> st.SearchStrategy[dict[str, str]]:
    """Manifests that pass every check."""
    path = st.lists(_segment, min_size=1, max_size=3).map("/".join)
    entity_id = st.binary(min_size=32, max_size=32).map(bytes.hex)
    return st.dictionaries(path, entity_id, max_size=12).filter(_fits)
