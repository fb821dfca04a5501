from __future__ import annotations

import io
import time

import pytest

from hub.errors import Invalid, TooLarge
from hub.pack.blocks import decompress_block
from hub.pack.format import Entry, Kind, Limits
from hub.pack.reader import FileSource, PackReader
from hub.records import object_id
from tests.hub.pack.build import Parts, block_of, commit, noise, sample, snapshot, text, verify, write


class Counting(FileSource):
    """Remembers every range that was read."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.ranges: list[tuple[int, int]] = []

    def read_at(self, offset: int, length: int) -> bytes:
        self.ranges.append((offset, length))
        return super().read_at(offset, length)


def test_two_ranges_open_a_pack() -> None:
    source = Counting(write([noise(5000, n) for n in range(500)])[0])
    PackReader.open(source)
    assert len(source.ranges) == 2


def test_one_range_gives_an_object() -> None:
    objects = [text(5000, n) for n in range(500)]
    source = Counting(write(objects)[0])
    reader = PackReader.open(source)
    source.ranges.clear()
    entry = reader.find(Kind.OBJECT, object_id(objects[250]))
    assert entry is not None
    assert reader.read(entry) == objects[250]
    block = reader.blocks[entry.block]
    assert source.ranges == [(block.offset, block.stored_length)]


def test_neighbours_are_read_with_one_range() -> None:
    objects = [text(5000, n) for n in range(100)]
    source = Counting(write(objects)[0])
    reader = PackReader.open(source)
    source.ranges.clear()
    assert [reader.read(entry) for entry in reader.entries] == objects
    assert len(source.ranges) == len(reader.blocks)


def test_object_can_be_sliced_out_of_a_ranged_read() -> None:
    data, _ = write([b"one", text(3000), b"three"])
    reader = verify(data)
    entry = reader.entries[1]
    block = reader.blocks[entry.block]
    raw = decompress_block(data[block.offset : block.offset + block.stored_length], block)
    assert raw[entry.offset : entry.offset + entry.raw_length] == text(3000)


def test_objects_come_in_file_order_and_may_be_left_unread() -> None:
    objects = [b"a", b"bb", text((1 << 20) + 1), text((9 << 20), 1), b"ccc"]
    reader = verify(write(objects)[0])
    found = [(entry, b"".join(chunks)) for entry, chunks in reader.iter_objects()]
    assert sorted(content for _, content in found) == sorted(objects)
    assert all(entry.entity_id == object_id(content) for entry, content in found)
    assert [entry for entry, _ in reader.iter_objects()] == [entry for entry, _ in found]


def test_large_object_comes_in_small_pieces() -> None:
    for content in (text(9 << 20), noise(9 << 20)):
        reader = verify(write([content])[0])
        chunks = list(reader.chunks(reader.entries[0]))
        assert b"".join(chunks) == content
        assert max(map(len, chunks)) <= 1 << 20


def test_records_come_back() -> None:
    first, second = snapshot({"a": object_id(b"x")}), snapshot({})
    commits = [commit(first), commit(second, "é", (commit(first).commit_id,))]
    reader = verify(write([], [first, second], commits)[0])
    assert list(reader.snapshots()) == [first, second]
    assert list(reader.commits()) == commits
    assert reader.read(reader.entries[-1]) == commits[-1].raw


def test_entries_are_a_sequence() -> None:
    reader = verify(sample())
    walked = list(reader.entries)
    assert len(reader.entries) == len(walked) == 9
    assert [reader.entries[n] for n in range(9)] == walked
    assert reader.entries[-1] == walked[-1]
    assert reader.entries[2:5] == walked[2:5]
    with pytest.raises(IndexError):
        reader.entries[9]


def test_find_knows_kinds_apart() -> None:
    reader = verify(sample())
    for entry in reader.entries:
        assert reader.find(entry.kind, entry.entity_id) == entry
    assert reader.find(Kind.OBJECT, next(reader.commits()).commit_id) is None


def test_same_id_may_be_an_object_and_a_snapshot() -> None:
    one = snapshot({"a": object_id(b"x")})
    preimage = f"a\0{object_id(b'x')}".encode()
    assert object_id(preimage) == one.snapshot_id
    assert len(verify(write([preimage], [one])[0]).entries) == 2


def test_object_with_another_content_is_refused_when_it_is_read() -> None:
    parts = Parts.of(sample())
    parts.ids[0] = bytes(32)
    reader = PackReader.open(FileSource(io.BytesIO(parts.seal())))
    with pytest.raises(Invalid, match="objects"):
        reader.read(Entry(*reader.entries[0]))


def test_commit_under_another_id_is_refused_when_it_is_read() -> None:
    parts = Parts.of(sample())
    number = block_of(parts, Kind.COMMIT)
    reader = PackReader.open(FileSource(io.BytesIO(sample())))
    parts.ids[reader.blocks[number].first_entry] = bytes(32)
    changed = PackReader.open(FileSource(io.BytesIO(parts.seal())))
    with pytest.raises(Invalid, match="holds the commit"):
        list(changed.commits())


def test_limits_hold_when_a_pack_is_opened() -> None:
    with pytest.raises(TooLarge):
        PackReader.open(FileSource(io.BytesIO(sample())), Limits(max_entries=3))


def test_index_of_a_hundred_thousand_entries_opens_in_well_under_a_second() -> None:
    data, _ = write(b"%d" % n for n in range(100_000))
    source = FileSource(io.BytesIO(data))
    began = time.process_time()
    reader = PackReader.open(source)
    assert time.process_time() - began < 1
    assert len(reader.entries) == 100_000
