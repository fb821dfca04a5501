"""Where the store in memory is stricter than S3."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import pytest

from storage import MemoryStore
from storage.memory import PAGE_KEYS, SHORT_READ_BYTES

NOON = datetime(2026, 1, 2, 12, 0, 0, 999, tzinfo=UTC)


def test_time_of_a_write_is_the_clock_s_to_the_second() -> None:
    store = MemoryStore(clock=lambda: NOON)
    store.put("k", b"x")
    assert store.head("k").modified_at == NOON.replace(microsecond=0)


def test_clock_without_a_time_zone_is_refused() -> None:
    store = MemoryStore(clock=lambda: NOON.replace(tzinfo=None))
    with pytest.raises(ValueError, match="time zone"):
        store.put("k", b"x")
    assert list(store.list()) == []


def test_etag_says_nothing_about_the_content() -> None:
    store = MemoryStore()
    store.put("k", b"same")
    first = store.head("k").etag
    store.put("k", b"same")
    assert store.head("k").etag != first


def test_reads_stop_short() -> None:
    store = MemoryStore()
    store.put("k", bytes(SHORT_READ_BYTES + 1))
    with store.get("k") as body:
        assert len(body.read(SHORT_READ_BYTES + 1)) == SHORT_READ_BYTES


def test_listing_shows_what_is_there_when_its_page_is_read() -> None:
    store = MemoryStore()
    for number in range(PAGE_KEYS + 1):
        store.put(f"{number}", b"x")
    listing = store.list()
    first = [next(listing).key for _ in range(PAGE_KEYS)]
    store.put("9", b"x")
    assert first == ["0", "1", "2"]
    assert [stat.key for stat in listing] == ["3", "9"]


def test_slow_body_does_not_hold_up_other_writers() -> None:
    store = MemoryStore()

    class WritesMeanwhile(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            store.put("other", b"x")
            return super().read(size)

    store.put("k", WritesMeanwhile(b"slow"))
    assert [stat.key for stat in store.list()] == ["k", "other"]


def test_it_cannot_sign() -> None:
    store = MemoryStore()
    assert store.presign_get("k", expires=timedelta(minutes=1)) is None
    assert store.presign_put("k", expires=timedelta(minutes=1)) is None
