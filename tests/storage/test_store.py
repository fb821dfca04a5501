"""What every store promises, asked of each, and what Body adds."""

from __future__ import annotations

import hashlib
import io
from datetime import UTC, datetime, timedelta

import pytest

from storage import (
    AlreadyExists,
    Body,
    DigestMismatch,
    InvalidKey,
    MemoryStore,
    NotFound,
    OutOfRange,
    Store,
    Unavailable,
)
from storage.body import CHUNK_BYTES
from storage.s3 import PART_BYTES

LARGE = bytes(range(256)) * (PART_BYTES // 256) + b"the second part"
SECOND = timedelta(seconds=1)
KEYS_IN_ORDER = ["Z", "a", "b", "b/0", "b/1", "b/1/x", "b/2", "b1", "b_", "c=1.pack", "d"]


def content(store: Store, key: str) -> bytes:
    with store.get(key) as body:
        return b"".join(body)


def keys(store: Store, prefix: str = "") -> list[str]:
    return [stat.key for stat in store.list(prefix)]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("data", [b"", b"x", LARGE], ids=["empty", "small", "large"])
class TestRoundTrip:
    def test_bytes_come_back(self, store: Store, data: bytes) -> None:
        store.put("k", data, sha256=sha256(data))
        assert content(store, "k") == data

    def test_file_comes_back(self, store: Store, data: bytes) -> None:
        store.put("k", io.BytesIO(data), sha256=sha256(data))
        assert content(store, "k") == data

    def test_body_of_one_object_can_become_another(self, store: Store, data: bytes) -> None:
        store.put("k", data)
        with store.get("k") as body:
            store.put("copy", body, sha256=sha256(data))
        assert content(store, "copy") == data

    def test_put_head_and_list_describe_the_same(self, store: Store, data: bytes) -> None:
        earliest = datetime.now(UTC).replace(microsecond=0) - SECOND
        assert store.put("k", data) == len(data)
        stat = store.head("k")
        assert (stat.key, stat.size) == ("k", len(data))
        assert earliest <= stat.modified_at <= datetime.now(UTC) + SECOND
        assert stat.modified_at.microsecond == 0
        assert list(store.list()) == [stat]


class TestPut:
    def test_file_is_read_from_where_it_stands(self, store: Store) -> None:
        file = io.BytesIO(b"header body")
        file.seek(7)
        store.put("k", file)
        assert content(store, "k") == b"body"

    def test_later_put_replaces_the_object(self, store: Store) -> None:
        store.put("k", b"first")
        first = store.head("k").etag
        store.put("k", b"second, longer")
        assert content(store, "k") == b"second, longer"
        assert store.head("k").etag != first

    @pytest.mark.parametrize("data", [b"right", LARGE], ids=["small", "large"])
    def test_wrong_digest_is_refused_and_nothing_visible(self, store: Store, data: bytes) -> None:
        with pytest.raises(DigestMismatch):
            store.put("k", io.BytesIO(data), sha256=sha256(b"wrong"))
        assert keys(store) == []
        with pytest.raises(NotFound):
            store.head("k")

    @pytest.mark.parametrize("data", [b"right", LARGE], ids=["small", "large"])
    def test_wrong_digest_leaves_the_old_object(self, store: Store, data: bytes) -> None:
        store.put("k", b"old")
        with pytest.raises(DigestMismatch):
            store.put("k", data, sha256=sha256(b"wrong"))
        assert content(store, "k") == b"old"

    def test_body_that_fails_on_the_way_leaves_nothing(self, store: Store) -> None:
        class Failing(io.BytesIO):
            def read(self, size: int | None = -1, /) -> bytes:
                chunk = super().read(size)
                if not chunk:
                    raise ConnectionResetError("the sender went away")
                return chunk

        for data in (b"small", LARGE):
            with pytest.raises(ConnectionResetError):
                store.put("k", Failing(data))
            assert keys(store) == []

    @pytest.mark.parametrize("data", [b"new", LARGE], ids=["small", "large"])
    def test_taken_key_is_refused_if_absent(self, store: Store, data: bytes) -> None:
        store.put("k", b"old", if_absent=True)
        with pytest.raises(AlreadyExists):
            store.put("k", data, if_absent=True)
        assert content(store, "k") == b"old"

    def test_large_body_goes_to_a_free_key_if_absent(self, store: Store) -> None:
        store.put("k", io.BytesIO(LARGE), if_absent=True, sha256=sha256(LARGE))
        assert content(store, "k") == LARGE

    def test_deleted_key_is_free_again(self, store: Store) -> None:
        store.put("k", b"old")
        store.delete("k")
        store.put("k", b"new", if_absent=True)
        assert content(store, "k") == b"new"


class TestRead:
    def test_absent_key_is_not_found(self, store: Store) -> None:
        store.put("k", b"x")
        for ask in (store.get, store.head, lambda key: store.get_range(key, 0, 1)):
            with pytest.raises(NotFound, match="absent"):
                ask("absent")

    def test_body_knows_its_size_and_hands_out_bounded_chunks(self, store: Store) -> None:
        store.put("k", LARGE)
        with store.get("k") as body:
            assert body.size == len(LARGE)
            sizes = [len(chunk) for chunk in body]
        assert sum(sizes) == len(LARGE)
        assert max(sizes) <= CHUNK_BYTES

    def test_body_can_be_read_in_steps_and_given_up(self, store: Store) -> None:
        store.put("k", LARGE)
        with store.get("k") as body:
            assert body.read(3) == LARGE[:3]
            assert body.read(4) == LARGE[3:7]

    def test_more_bodies_than_connections_can_be_given_up(self, store: Store) -> None:
        store.put("k", LARGE)
        for _ in range(40):
            with store.get("k") as body:
                assert body.read(1) == LARGE[:1]
        assert content(store, "k") == LARGE

    def test_reader_sees_one_version_though_the_key_is_deleted(self, store: Store) -> None:
        store.put("k", b"whole" * 100_000)
        with store.get("k") as body:
            store.delete("k")
            assert b"".join(body) == b"whole" * 100_000

    @pytest.mark.parametrize(
        ("offset", "length"),
        [(0, 1), (0, 10), (9, 1), (3, 4)],
    )
    def test_range_is_exact(self, store: Store, offset: int, length: int) -> None:
        store.put("k", b"0123456789")
        assert store.get_range("k", offset, length) == b"0123456789"[offset : offset + length]

    def test_range_is_opened_in_bounded_chunks_and_can_be_given_up(self, store: Store) -> None:
        store.put("k", LARGE)
        with store.open_range("k", 5, len(LARGE) - 9) as body:
            assert body.size == len(LARGE) - 9
            chunks = list(body)
        assert b"".join(chunks) == LARGE[5:-4]
        assert max(map(len, chunks)) <= CHUNK_BYTES
        with store.open_range("k", 5, len(LARGE) - 9) as body:
            assert body.read(3) == LARGE[5:8]

    def test_range_over_the_parts_of_a_large_object_is_exact(self, store: Store) -> None:
        store.put("k", LARGE)
        assert store.get_range("k", PART_BYTES - 5, 10) == LARGE[PART_BYTES - 5 : PART_BYTES + 5]

    @pytest.mark.parametrize(("offset", "length"), [(0, 11), (9, 2), (10, 1), (1000, 1000)])
    def test_range_past_the_end_is_out_of_range(self, store: Store, offset: int, length: int) -> None:
        store.put("k", b"0123456789")
        with pytest.raises(OutOfRange):
            store.get_range("k", offset, length)

    def test_range_of_an_empty_object_is_out_of_range(self, store: Store) -> None:
        store.put("k", b"")
        with pytest.raises(OutOfRange):
            store.get_range("k", 0, 1)

    @pytest.mark.parametrize(("offset", "length"), [(-1, 1), (0, 0), (0, -1)])
    def test_range_that_is_none_is_refused(self, store: Store, offset: int, length: int) -> None:
        store.put("k", b"0123456789")
        with pytest.raises(ValueError, match=r"offset|length"):
            store.get_range("k", offset, length)


class TestDeleteAndList:
    def test_delete_removes_and_may_be_repeated(self, store: Store) -> None:
        store.put("k", b"x")
        store.delete("k")
        store.delete("k")
        assert keys(store) == []

    def test_listing_is_in_the_order_of_keys(self, store: Store) -> None:
        for key in reversed(KEYS_IN_ORDER):
            store.put(key, b"x")
        assert keys(store) == KEYS_IN_ORDER

    @pytest.mark.parametrize("prefix", ["b", "b/", "b/1", "c=1.", "nothing", "d"])
    def test_prefix_may_end_anywhere(self, store: Store, prefix: str) -> None:
        for key in KEYS_IN_ORDER:
            store.put(key, b"x")
        assert keys(store, prefix) == [key for key in KEYS_IN_ORDER if key.startswith(prefix)]

    def test_names_that_continue_each_other_are_listed_once_each(self, store: Store) -> None:
        names = ["a", "a-b", "a.b", "a/b", "a/b-c", "a/b/c", "a0"]
        for name in names:
            store.put(name, b"x")
        assert sorted(keys(store)) == names

    def test_what_is_listed_can_be_deleted_on_the_way(self, store: Store) -> None:
        for number in range(10):
            store.put(f"old/{number}", b"x")
        store.put("young", b"x")
        for stat in store.list("old/"):
            store.delete(stat.key)
        assert keys(store) == ["young"]

    def test_object_and_folder_of_one_name_live_side_by_side(self, store: Store) -> None:
        store.put("a/b", b"inner")
        store.put("a", b"outer")
        assert (content(store, "a"), content(store, "a/b")) == (b"outer", b"inner")
        store.delete("a")
        assert keys(store) == ["a/b"]


class TestKeys:
    @pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "..", "a/../b", ".hidden", "a b", "ä", "a\n", "a\\b"])
    def test_bad_key_is_refused_by_every_method(self, store: Store, key: str) -> None:
        for call in (
            lambda: store.put(key, b""),
            lambda: store.get(key),
            lambda: store.get_range(key, 0, 1),
            lambda: store.head(key),
            lambda: store.delete(key),
            lambda: store.presign_get(key, expires=SECOND),
            lambda: store.presign_put(key, expires=SECOND),
        ):
            with pytest.raises(InvalidKey):
                call()

    def test_bad_prefix_is_refused_before_the_first_page(self, store: Store) -> None:
        with pytest.raises(InvalidKey):
            store.list("../")

    def test_longest_key_works(self, store: Store) -> None:
        key = "/".join(["0" * 255, "1" * 255, "2" * 255])
        store.put(key, b"x")
        assert keys(store, "0") == [key]
        assert content(store, key) == b"x"


class TestBody:
    def test_short_source_is_unavailable_not_a_short_object(self) -> None:
        with Body("k", io.BytesIO(b"half"), 8) as body:
            assert body.read(8) == b"half"
            with pytest.raises(Unavailable, match="4 bytes before the end"):
                body.read(8)

    def test_long_source_is_unavailable(self) -> None:
        with Body("k", io.BytesIO(b"more than said"), 4) as body, pytest.raises(Unavailable):
            body.read(8)

    def test_closed_body_is_not_read(self) -> None:
        body = store_of_k().get("k")
        body.close()
        body.close()
        with pytest.raises(ValueError, match="closed"):
            body.read(1)

    def test_size_below_one_is_refused(self) -> None:
        with store_of_k().get("k") as body, pytest.raises(ValueError, match="at least 1"):
            body.read(-1)

    def test_body_that_is_never_closed_warns(self) -> None:
        bodies = [store_of_k().get("k")]
        with pytest.warns(ResourceWarning, match="never closed"):
            bodies.clear()


def store_of_k() -> MemoryStore:
    store = MemoryStore()
    store.put("k", b"x")
    return store
