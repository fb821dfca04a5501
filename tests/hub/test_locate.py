"""Objects by ranged reads: neighbours in one request, and what is kept is bounded."""

from __future__ import annotations

import io
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub import locate
from hub.keys import archive_key
from hub.locate import BlockReader, Place
from hub.pack.format import Kind
from hub.pack.reader import FileSource, PackReader
from storage import FaultyStore, MemoryStore
from tests.hub.pack.build import noise, write

REPOSITORY = UUID(int=1)
CONTENTS = [noise(600_000, seed) for seed in range(8)]
PACK, SUMMARY = write(CONTENTS)


class Reading:
    """A reader over a pack of eight blocks, the places that it is asked for, and the log of its reads."""

    def __init__(self, every: int = 1) -> None:
        self.reads: list[str] = []
        store = FaultyStore(MemoryStore(), hook=self.log)
        store.put(archive_key(REPOSITORY, SUMMARY.mpack_id), PACK)
        self.reads.clear()
        opened = PackReader.open(FileSource(io.BytesIO(PACK)))
        objects = [entry for entry in opened.entries if entry.kind is Kind.OBJECT][::every]
        self.places = [Place(SUMMARY.mpack_id, opened.blocks[entry.block], entry) for entry in objects]
        self.reader = BlockReader(store, REPOSITORY, self.places)

    def log(self, op: str, key: str, phase: str) -> None:
        if phase == "before":
            self.reads.append(f"{op} {key}")

    def read(self, number: int) -> bytes:
        return self.reader.content(self.places[number])


def test_every_object_is_read_as_it_was_packed() -> None:
    reading = Reading()
    assert [reading.read(number) for number in range(8)] == CONTENTS


def test_neighbours_come_in_one_read_of_at_most_four_mebibytes() -> None:
    reading = Reading()
    for number in range(8):
        reading.read(number)
    assert len(reading.reads) == 2


def test_blocks_with_another_between_them_are_read_apart() -> None:
    reading = Reading(every=2)
    assert [reading.read(number) for number in range(4)] == CONTENTS[::2]
    assert len(reading.reads) == 4


@given(st.lists(st.integers(0, 7), max_size=12))
def test_what_is_kept_is_counted_right_in_any_order(order: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(locate, "KEPT_BYTES", 1_500_000)
        patch.setattr(locate, "RUN_BYTES", 1_300_000)
        reading = Reading()
        kept = reading.reader._kept
        for number in order:
            assert reading.read(number) == CONTENTS[number]
            assert reading.reader._kept_bytes == sum(len(stored) for stored in kept.values())
            assert len(kept) <= 2
