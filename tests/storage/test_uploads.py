"""Uploads in parts, and copies inside the store, over every store.

Not on moto: it copies whatever the condition says, invents times, and fails on a part of an upload that has ended.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

import storage.s3
from storage import Fault, FaultyStore, MemoryStore, NotFound, Part, StorageError, Store, Unavailable
from storage.store import PART_BYTES_MIN

FIRST = b"1" * PART_BYTES_MIN
STORES = pytest.mark.parametrize(
    "store",
    ["memory", "prefixed", "faulty", pytest.param("seaweedfs", marks=pytest.mark.integration)],
    indirect=True,
)


def content_of(store: Store, key: str) -> bytes:
    with store.get(key) as body:
        return b"".join(body)


@STORES
class TestParts:
    def test_parts_become_one_object_whatever_order_they_came_in(self, store: Store) -> None:
        upload_id = store.create_upload("a/k")
        store.put_part("a/k", upload_id, 2, b"end")
        store.put_part("a/k", upload_id, 1, FIRST)
        stat = store.complete_upload("a/k", upload_id, list(store.list_parts("a/k", upload_id)))
        assert (stat.key, stat.size) == ("a/k", len(FIRST) + 3)
        assert content_of(store, "a/k") == FIRST + b"end"

    def test_arrived_parts_are_told_by_number_with_their_sizes(self, store: Store) -> None:
        upload_id = store.create_upload("k")
        assert list(store.list_parts("k", upload_id)) == []
        sent = [store.put_part("k", upload_id, number, b"x" * number) for number in (3, 1)]
        told = list(store.list_parts("k", upload_id))
        assert [(part.number, part.size) for part in told] == [(1, 1), (3, 3)]
        assert {part.etag for part in told} == {part.etag for part in sent}

    def test_a_part_sent_again_replaces_the_first_one(self, store: Store) -> None:
        upload_id = store.create_upload("k")
        store.put_part("k", upload_id, 1, b"wrong")
        store.complete_upload("k", upload_id, [store.put_part("k", upload_id, 1, b"right!")])
        assert content_of(store, "k") == b"right!"

    def test_nothing_is_visible_before_the_end(self, store: Store) -> None:
        upload_id = store.create_upload("k")
        store.put_part("k", upload_id, 1, b"x")
        with pytest.raises(NotFound):
            store.head("k")
        assert list(store.list()) == []

    def test_two_uploads_to_one_key_are_apart(self, store: Store) -> None:
        one, other = store.create_upload("k"), store.create_upload("k")
        store.put_part("k", one, 1, b"one")
        store.put_part("k", other, 1, b"other")
        store.complete_upload("k", one, list(store.list_parts("k", one)))
        assert content_of(store, "k") == b"one"
        store.complete_upload("k", other, list(store.list_parts("k", other)))
        assert content_of(store, "k") == b"other"

    def test_an_aborted_upload_has_ended(self, store: Store) -> None:
        upload_id = store.create_upload("k")
        store.put_part("k", upload_id, 1, b"x")
        store.abort_upload("k", upload_id)
        store.abort_upload("k", upload_id)
        with pytest.raises(NotFound):
            list(store.list_parts("k", upload_id))
        with pytest.raises(NotFound):
            store.put_part("k", upload_id, 1, b"x")
        with pytest.raises(NotFound):
            store.complete_upload("k", upload_id, [Part(1, 1, "e")])
        assert list(store.list_uploads("k")) == []

    def test_a_completed_upload_is_not_open_any_more(self, store: Store) -> None:
        upload_id = store.create_upload("k")
        store.put_part("k", upload_id, 1, b"x")
        store.complete_upload("k", upload_id, list(store.list_parts("k", upload_id)))
        assert list(store.list_uploads("k")) == []

    def test_open_uploads_are_told_by_prefix_with_their_time(self, store: Store) -> None:
        begun = {store.create_upload(key): key for key in ("staging/r1/a", "staging/r1/b", "staging/r2/a")}
        told = {found.upload_id: found for found in store.list_uploads("staging/r1/")}
        assert {upload_id: found.key for upload_id, found in told.items()} == {
            upload_id: key for upload_id, key in begun.items() if key.startswith("staging/r1/")
        }
        for found in told.values():
            assert abs(found.created_at - datetime.now(UTC)) < timedelta(minutes=1)
        assert {found.key for found in store.list_uploads("staging/r1/a")} == {"staging/r1/a"}
        for upload_id, key in begun.items():
            store.abort_upload(key, upload_id)
        assert list(store.list_uploads("staging/")) == []


@STORES
class TestCopy:
    def test_copy_is_the_version_that_was_named(self, store: Store) -> None:
        store.put("from", b"content")
        with store.get("from") as body:
            etag = body.etag
        assert store.copy("from", "to/k", etag=etag).size == 7
        assert content_of(store, "to/k") == b"content"

    def test_copy_replaces_what_is_there(self, store: Store) -> None:
        store.put("to", b"old")
        store.put("from", b"new")
        store.copy("from", "to", etag=store.head("from").etag)
        assert content_of(store, "to") == b"new"

    def test_another_version_is_not_copied(self, store: Store) -> None:
        store.put("from", b"verified")
        etag = store.head("from").etag
        store.put("from", b"replaced")
        with pytest.raises(NotFound):
            store.copy("from", "to", etag=etag)
        with pytest.raises(NotFound):
            store.head("to")

    def test_what_is_not_there_is_not_copied(self, store: Store) -> None:
        with pytest.raises(NotFound):
            store.copy("from", "to", etag="e")


@pytest.mark.parametrize(
    ("sizes", "numbers", "words"),
    [((5, 5), (1, 2), "too small"), ((5,), (2,), "not arrived"), ((5, 5), (2, 1), "in order"), ((), (), "order")],
)
def test_parts_that_make_no_object_are_refused_as_by_s3(
    memory_store: Store, sizes: tuple[int, ...], numbers: tuple[int, ...], words: str
) -> None:
    upload_id = memory_store.create_upload("k")
    sent = {n: memory_store.put_part("k", upload_id, n, b"x" * size) for n, size in enumerate(sizes, start=1)}
    with pytest.raises(StorageError, match=words):
        memory_store.complete_upload("k", upload_id, [sent.get(n, Part(n, 5, "e")) for n in numbers])


@pytest.mark.parametrize("op", ["create_upload", "put_part", "complete_upload", "abort_upload", "copy"])
def test_a_lost_answer_was_done_all_the_same(op: str) -> None:
    inner = MemoryStore()
    store = FaultyStore(inner, script=[(op, Fault.ANSWER_LOST)])
    inner.put("from", b"x")
    etag = inner.head("from").etag
    upload_id = inner.create_upload("k")
    part = inner.put_part("k", upload_id, 1, b"x")
    calls: dict[str, Callable[[], object]] = {
        "create_upload": lambda: store.create_upload("k"),
        "put_part": lambda: store.put_part("k", upload_id, 2, b"x"),
        "complete_upload": lambda: store.complete_upload("k", upload_id, [part]),
        "abort_upload": lambda: store.abort_upload("k", upload_id),
        "copy": lambda: store.copy("from", "to", etag=etag),
    }

    def state() -> object:
        uploads = list(inner.list_uploads())
        return list(inner.list()), uploads, [list(inner.list_parts(found.key, found.upload_id)) for found in uploads]

    before = state()
    with pytest.raises(Unavailable):
        calls[op]()
    assert state() != before


def test_memory_cannot_sign_a_part(memory_store: Store) -> None:
    upload_id = memory_store.create_upload("k")
    assert memory_store.presign_part("k", upload_id, 1, expires=timedelta(minutes=1)) is None


@pytest.mark.integration
class TestRealServer:
    def test_a_signed_part_is_sent_by_urllib_and_dies_with_its_upload(self, s3_store: Store) -> None:
        upload_id = s3_store.create_upload("k")
        link = s3_store.presign_part("k", upload_id, 1, expires=timedelta(minutes=1))
        assert link is not None
        assert (link.method, link.headers) == ("PUT", {})
        assert "X-Amz-SignedHeaders=host&" in link.url

        def send() -> None:
            request = urllib.request.Request(link.url, data=b"content", method="PUT")
            urllib.request.urlopen(request, timeout=30).close()

        send()
        s3_store.complete_upload("k", upload_id, list(s3_store.list_parts("k", upload_id)))
        with pytest.raises(urllib.error.HTTPError) as refused:
            send()
        refused.value.close()
        assert content_of(s3_store, "k") == b"content"

    def test_large_objects_are_copied_in_parts(self, s3_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(storage.s3, "COPY_BYTES", PART_BYTES_MIN)
        content = FIRST + FIRST + b"end"
        s3_store.put("from", content)
        etag = s3_store.head("from").etag
        s3_store.copy("from", "to", etag=etag)
        assert content_of(s3_store, "to") == content
        with pytest.raises(NotFound):
            s3_store.copy("from", "other", etag="0" * 32)
        assert list(s3_store.list_uploads()) == []
