from __future__ import annotations

import dataclasses

import msgpack
import pytest

from hub.errors import Invalid, TooLarge
from hub.pack.format import HEADER, Kind, Limits
from hub.records import commit_record, object_id
from tests.hub.pack.build import (
    LIMITS,
    NOON,
    Parts,
    commit,
    noise,
    raw_pack,
    refusal,
    sample,
    seal,
    snapshot,
    split,
    text,
    verify,
    write,
)


def test_good_pack_is_returned_open() -> None:
    data = sample()
    reader = verify(data, expect_id=object_id(data))
    assert [block.kind for block in reader.blocks] == [Kind.OBJECT, Kind.OBJECT, Kind.SNAPSHOT, Kind.COMMIT]
    assert len(list(reader.iter_objects())) == 5


def test_taken_apart_and_sealed_it_is_the_same() -> None:
    assert Parts.of(sample()).seal() == sample()


def test_other_digest_is_refused() -> None:
    with pytest.raises(Invalid) as caught:
        verify(sample(), expect_id=object_id(b"x"))
    assert caught.value.field == "mpack_id"


@pytest.mark.parametrize("data", [b"", b"x", bytes(63), bytes(64), bytes(1000), HEADER, b"PK\x03\x04" * 100])
def test_other_files_are_refused(data: bytes) -> None:
    assert refusal(data)


def test_every_truncation_is_refused() -> None:
    data = sample()
    for length in range(len(data)):
        assert refusal(data[:length])


def test_bytes_before_and_after_are_refused() -> None:
    assert "after its end" in refusal(sample() + b"\0")
    assert refusal(b"\0" + sample())


def test_every_flipped_byte_is_noticed() -> None:
    data = sample()
    for at in {*range(0, len(data), 5), *range(32), *range(len(data) - 64, len(data))}:
        changed = bytearray(data)
        changed[at] ^= 0x41
        with pytest.raises(Invalid):
            verify(bytes(changed))


def test_other_header_is_refused() -> None:
    body, index = split(sample())
    assert "header" in refusal(seal(body[:8] + b"\x02" + body[9:], index))
    assert "header" in refusal(seal(body[:15] + b"\x01" + body[16:], index))


def test_objects_that_share_more_than_a_mib_are_refused() -> None:
    contents = [noise(600_000), noise(600_000, 1)]
    assert "several entries" in refusal(
        raw_pack(Kind.OBJECT, [bytes.fromhex(object_id(c)) for c in contents], contents)
    )


def test_object_of_another_content_is_refused_by_its_id() -> None:
    for content in (b"x", text((1 << 20) + 1), text(9 << 20)):
        parts = Parts.of(write([content])[0])
        parts.ids = [bytes(32)]
        with pytest.raises(Invalid, match=f"has the id {object_id(content)}") as caught:
            verify(parts.seal())
        assert caught.value.field == f"objects[{'00' * 32}]"


def test_kind_of_a_block_is_not_a_matter_of_opinion() -> None:
    for kind in Kind:
        parts = Parts.of(sample())
        for number, row in enumerate(parts.rows):
            if row.kind != kind:
                parts.rows[number] = row._replace(kind=kind)
                assert refusal(parts.seal())
                parts.rows[number] = row


def test_commit_under_another_id_is_refused() -> None:
    first = commit(snapshot({}))
    assert "holds the commit" in refusal(raw_pack(Kind.COMMIT, [bytes(32)], [first.raw]))


def test_commit_that_breaks_a_rule_is_refused_by_name() -> None:
    record = commit_record(snapshot_id=object_id(b""), message="a\0b", committed_at=NOON)
    raw = msgpack.packb(record)
    with pytest.raises(Invalid) as caught:
        verify(raw_pack(Kind.COMMIT, [bytes.fromhex(record["commit_id"])], [raw]))
    assert caught.value.field == f"commits[{record['commit_id']}].message"


@pytest.mark.parametrize(
    ("limits", "word"),
    [
        ({"max_file": 100}, "bytes"),
        ({"max_entries": 8}, "entries"),
        ({"max_raw_total": 1 << 20}, "after decompression"),
        ({"max_object": 1 << 20}, "object"),
        ({"max_record": 100}, "snapshot"),
        ({"max_rows": 47}, "paths"),
    ],
)
def test_limit_is_named(limits: dict[str, int], word: str) -> None:
    with pytest.raises(TooLarge, match=word):
        verify(sample(), dataclasses.replace(LIMITS, **limits))


def test_limits_are_inclusive() -> None:
    data = sample()
    exact = Limits(
        max_file=len(data),
        max_entries=9,
        max_raw_total=sum(row.raw_length for row in Parts.of(data).rows),
        max_object=(1 << 20) + 5,
        max_record=max(Parts.of(data).lengths[5:]),
        max_rows=49,
    )
    assert verify(data, exact)
