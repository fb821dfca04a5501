from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.errors import Invalid, TooLarge
from hub.record_bytes import MAX_PLAIN_BYTES
from hub.records import EMPTY_OBJECT_ID, commit_record, parse_commit, wire_commit


def good(**changes: Any) -> dict[str, Any]:
    """A good commit record, with `changes` that its id does not cover."""
    record = commit_record(snapshot_id=EMPTY_OBJECT_ID, message="first", committed_at="2026-03-24T12:00:00+00:00")
    return {**record, **changes}


def test_delta_is_not_sent_on() -> None:
    raw = msgpack.packb(good(structured_delta={"domain": "code", "ops": [{"op": 1}]}, future=[1, {"a": None}]))
    sent = msgpack.unpackb(wire_commit(raw))
    assert "structured_delta" not in sent
    assert sent["future"] == [1, {"a": None}]
    assert len(sent) == 22


def test_delta_under_a_longer_key_encoding_is_not_sent_on() -> None:
    raw = msgpack.packb(good())
    long_key = raw.replace(b"\xb0structured_delta", b"\xd9\x10structured_delta")
    assert "structured_delta" not in msgpack.unpackb(wire_commit(long_key))


def test_large_delta_is_never_decoded() -> None:
    raw = msgpack.packb(good(structured_delta=[[]] * (2 * MAX_PLAIN_BYTES)))
    assert parse_commit(raw).commit_id == good()["commit_id"]


def test_large_record_is_refused() -> None:
    with pytest.raises(TooLarge):
        parse_commit(good(author="x" * MAX_PLAIN_BYTES))


def test_repeated_key_is_refused() -> None:
    raw = msgpack.packb(good())
    twice = b"\xde\x00\x17" + raw[3:] + msgpack.packb("message") + msgpack.packb("other")
    with pytest.raises(Invalid, match="the key 'message' twice"):
        parse_commit(twice)


@pytest.mark.parametrize("value", [msgpack.Timestamp(5), msgpack.ExtType(4, b"x"), {"a": {5: 6}}])
def test_value_that_not_every_reader_takes_is_refused(value: object) -> None:
    raw = msgpack.packb(good(future=value))
    with pytest.raises(Invalid):
        parse_commit(raw)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x80",
        b"\x90",
        b"\xc0",
        b"\x81\x01\x02",
        b"\xdf\xff\xff\xff\xff",
        b"\x81\xa1a\xdd\xff\xff\xff\xff",
        b"\x81\xa1a\xdb\xff\xff\xff\xff",
        b"\x81\xa1a" + b"\x91" * 100_000 + b"\xc0",
        b"\xc1",
        msgpack.packb(good()) + b"\x00",
        msgpack.packb(good())[:-1],
        b"\x81" + msgpack.packb("k" * 300) + b"\x01",
    ],
)
def test_bytes_that_are_no_record_are_refused(raw: bytes) -> None:
    with pytest.raises(Invalid):
        parse_commit(raw)


@given(st.binary(max_size=200), st.integers(0, 700))
def test_garbage_is_refused_or_in_no_id(garbage: bytes, at: int) -> None:
    whole = msgpack.packb(good())
    for raw in (garbage, b"\x8f" + garbage, whole[:at] + garbage):
        try:
            commit = parse_commit(raw)
        except (Invalid, TooLarge):
            continue
        assert commit.commit_id == good()["commit_id"]


@pytest.mark.parametrize("value", [2**70, object(), {1, 2}])
def test_map_that_msgpack_cannot_hold_is_refused(value: object) -> None:
    with pytest.raises(Invalid):
        parse_commit(good(future=value))


def test_record_must_be_a_map() -> None:
    with pytest.raises(Invalid):
        parse_commit([1, 2])  # type: ignore[arg-type]
