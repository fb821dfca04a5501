"""Lies in the index, every seal right."""

from __future__ import annotations

import struct

import pytest

from hub.errors import TooLarge
from hub.pack.format import Kind
from hub.records import object_id
from tests.hub.pack.build import Parts, block_of, noise, raw_pack, refusal, sample, seal, split, verify, write


@pytest.mark.parametrize("extra", [b"\0", bytes(40)])
def test_index_must_end_with_its_lengths(extra: bytes) -> None:
    body, index = split(sample())
    assert "cannot hold" in refusal(seal(body, index + extra))
    assert "cannot hold" in refusal(seal(body, index[: -len(extra)]))


def test_bytes_of_no_block_are_refused() -> None:
    body, index = split(sample())
    assert "no block" in refusal(seal(body + b"\0", index))


def test_huge_counts_are_refused_unread() -> None:
    body, index = split(sample())
    assert "cannot hold" in refusal(seal(body, struct.pack("<II", 2**32 - 1, 9) + index[8:]))
    with pytest.raises(TooLarge):
        verify(seal(body, struct.pack("<II", 4, 2**32 - 1) + index[8:]))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stored_length", 0),
        ("stored_length", 2**63),
        ("stored_length", 2**64 - 1),
        ("raw_length", 0),
        ("raw_length", 2**64 - 1),
        ("entry_count", 0),
        ("entry_count", 1),
        ("entry_count", 2**32 - 1),
        ("checksum", 0),
        ("kind", 0),
        ("kind", 4),
        ("kind", 255),
        ("codec", 2),
        ("codec", 255),
    ],
)
def test_lie_in_the_block_table_is_refused(field: str, value: int) -> None:
    parts = Parts.of(sample())
    lies = [number for number, row in enumerate(parts.rows) if getattr(row, field) != value]
    assert lies
    for number in lies:
        truth = parts.rows[number]
        parts.rows[number] = truth._replace(**{field: value})
        assert refusal(parts.seal())
        parts.rows[number] = truth


def test_reserved_bytes_of_the_block_table_must_be_zero() -> None:
    body, index = split(sample())
    assert "reserved" in refusal(seal(body, index[: 8 + 31] + b"\x01" + index[8 + 32 :]))


def test_overlap_and_gap_between_blocks_are_refused() -> None:
    parts = Parts.of(sample())
    for change in (1, -1):
        moved = Parts.of(sample())
        first, second = parts.rows[:2]
        moved.rows[0] = first._replace(stored_length=first.stored_length + change)
        moved.rows[1] = second._replace(stored_length=second.stored_length - change)
        assert refusal(moved.seal())


def test_one_frame_cannot_serve_two_blocks() -> None:
    parts = Parts.of(sample())
    parts.rows.append(parts.rows[0])
    parts.ids += [bytes([n]) * 32 for n in range(parts.rows[0].entry_count)]
    parts.lengths += parts.lengths[: parts.rows[0].entry_count]
    assert "reaches beyond" in refusal(parts.seal())


def test_blocks_in_another_order_are_refused() -> None:
    parts = Parts.of(sample())
    parts.rows[0], parts.rows[1] = parts.rows[1], parts.rows[0]
    assert refusal(parts.seal())


def test_shifted_entries_are_refused() -> None:
    data = write([b"first", b"second"])[0]
    parts = Parts.of(data)
    parts.lengths = [6, 5]
    assert "its content has the id" in refusal(parts.seal())
    parts.lengths = [11, 0]
    assert "no bytes" in refusal(parts.seal())
    parts.lengths = [2**64 - 1, 12]
    assert "declares 11" in refusal(parts.seal())


def test_repeated_id_is_refused() -> None:
    assert "twice" in refusal(raw_pack(Kind.OBJECT, [bytes.fromhex(object_id(b"x"))] * 2, [b"x", b"x"]))
    parts = Parts.of(sample())
    number = sum(row.entry_count for row in parts.rows[: block_of(parts, Kind.COMMIT)])
    parts.ids[number + 1] = parts.ids[number]
    assert "twice" in refusal(parts.seal())


def test_repeated_id_in_two_blocks_is_refused() -> None:
    content = noise(100)
    parts = Parts.of(write([content])[0])
    parts.rows *= 2
    parts.stored *= 2
    parts.ids *= 2
    parts.lengths *= 2
    assert "twice" in refusal(parts.seal())
