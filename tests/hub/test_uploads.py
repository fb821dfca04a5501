"""Large objects that the Muse client puts straight into the object store."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Callable

import msgpack
import pytest

from hub.fetch_body import ANSWER_BYTES, object_size
from hub.keys import upload_key
from hub.uploads import MUSE_OBJECT_BYTES
from storage import NotFound, Store
from tests.hub.offers import refused
from tests.hub.world import History, World

pytestmark = pytest.mark.integration

LARGE = bytes(range(256)) * 400


@pytest.fixture
def large_world(new_world: Callable[..., World], s3_store: Store) -> World:
    return new_world(archive=s3_store)


@pytest.fixture
def tip(history: History) -> str:
    return history.commit({"large.bin": LARGE, "small.txt": b"small", "empty": b""})


def presign(world: World, object_ids: list[str]) -> dict[str, object]:
    answer = world.post("/presign", {"object_ids": object_ids, "direction": "put"}, muse=True)
    assert answer.status_code == 200, answer.text
    return dict(msgpack.unpackb(answer.data))


def put(url: object, content: bytes) -> None:
    """As the client does: urllib gives the body a content type of its own."""
    request = urllib.request.Request(str(url), data=content, method="PUT")
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200


def missing(world: World, object_ids: list[str]) -> list[str]:
    answer = world.post("/filter-objects", {"object_ids": object_ids}, muse=True)
    return list(msgpack.unpackb(answer.data)["missing"])


def test_an_upload_counts_as_held_once_it_has_arrived(large_world: World, history: History, tip: str) -> None:
    large, small = sorted(history.objects_of([tip]), key=lambda item: -len(history.contents[item]))
    said = presign(large_world, [large])
    assert said["inline"] == []
    assert set(missing(large_world, [large, small])) == {large, small}
    put(said["presigned"][large], LARGE)  # type: ignore[index]
    assert missing(large_world, [large, small]) == [small]


def test_a_push_adopts_what_was_uploaded(large_world: World, history: History, tip: str) -> None:
    world = large_world
    large, small = sorted(history.objects_of([tip]), key=lambda item: -len(history.contents[item]))
    put(presign(world, [large])["presigned"][large], LARGE)  # type: ignore[index]
    world.post("/push/objects", {"objects": [{"object_id": small, "content": b"small"}]}, muse=True)
    push = {"bundle": history.bundle([tip]), "branch": "main", "force": False}
    assert world.post("/push", push, muse=True).status_code == 200
    world.drain()
    fetched = msgpack.unpackb(world.post("/fetch", {"want": [tip], "have": []}, muse=True).data)
    assert {item["object_id"]: item["content"] for item in fetched["objects"]} == {large: LARGE, small: b"small"}
    with pytest.raises(NotFound):
        world.archive.head(upload_key(world.repository_id, large))


def test_other_bytes_are_refused_at_the_push_and_removed(large_world: World, history: History) -> None:
    world = large_world
    tip = history.commit({"large.bin": LARGE})
    (large,) = history.objects_of([tip])
    put(presign(world, [large])["presigned"][large], b"other bytes")  # type: ignore[index]
    push = {"bundle": history.bundle([tip]), "branch": "main", "force": False}
    refused(world.post("/push", push, muse=True), 422, large)
    assert world.heads() == {}
    put(presign(world, [large])["presigned"][large], LARGE)  # type: ignore[index]
    assert world.post("/push", push, muse=True).status_code == 200


def test_after_a_url_that_is_not_good_any_more_the_next_push_works(large_world: World, history: History) -> None:
    """The client ends with a traceback, and asks for a new one in its next push."""
    world = large_world
    tip = history.commit({"large.bin": LARGE})
    (large,) = history.objects_of([tip])
    url = str(presign(world, [large])["presigned"][large])  # type: ignore[index]
    with pytest.raises(urllib.error.HTTPError) as error:
        put(re.sub("X-Amz-Date=2[0-9]{3}", "X-Amz-Date=2020", url), LARGE)
    error.value.close()
    assert error.value.code == 403
    assert missing(world, [large]) == [large]
    put(presign(world, [large])["presigned"][large], LARGE)  # type: ignore[index]
    push = {"bundle": history.bundle([tip]), "branch": "main", "force": False}
    assert world.post("/push", push, muse=True).status_code == 200


def test_an_object_that_could_never_be_fetched_is_refused_with_a_way_out(
    large_world: World, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = large_world
    monkeypatch.setattr("hub.uploads.MUSE_OBJECT_BYTES", len(LARGE) - 1)
    tip = history.commit({"large.bin": LARGE})
    (large,) = history.objects_of([tip])
    put(presign(world, [large])["presigned"][large], LARGE)  # type: ignore[index]
    push = {"bundle": history.bundle([tip]), "branch": "main", "force": False}
    answer = world.post("/push", push, muse=True)
    refused(answer, 413, large[:12], f"{len(LARGE)} bytes", "packhouse push")
    assert world.heads() == {}
    monkeypatch.setattr("hub.uploads.MUSE_OBJECT_BYTES", len(LARGE))
    put(presign(world, [large])["presigned"][large], LARGE)  # type: ignore[index]
    assert world.post("/push", push, muse=True).status_code == 200


def test_an_object_that_is_taken_leaves_room_in_an_answer() -> None:
    around = object_size(0) + 1_000_000
    assert MUSE_OBJECT_BYTES + around < ANSWER_BYTES


def test_an_upload_of_other_bytes_is_still_missing(large_world: World, history: History, tip: str) -> None:
    assert tip
    large = max(history.contents, key=lambda item: len(history.contents[item]))
    put(presign(large_world, [large])["presigned"][large], b"other bytes")  # type: ignore[index]
    assert missing(large_world, [large]) == [large]
    with pytest.raises(NotFound):
        large_world.archive.head(upload_key(large_world.repository_id, large))


def test_an_upload_for_one_repository_is_not_held_by_another(large_world: World, history: History, tip: str) -> None:
    assert tip
    world = large_world
    large = max(history.contents, key=lambda item: len(history.contents[item]))
    put(presign(world, [large])["presigned"][large], LARGE)  # type: ignore[index]
    world.repository("alice/other")
    world.base = "/alice/other"
    assert missing(world, [large]) == [large]


def test_where_the_store_cannot_presign_all_goes_inline(world: World, history: History, tip: str) -> None:
    object_ids = history.objects_of([tip])
    assert presign(world, object_ids) == {"presigned": {}, "inline": object_ids}


def test_only_uploads_are_presigned(world: World) -> None:
    assert world.post("/presign", {"object_ids": [], "direction": "get"}, muse=True).status_code == 422


def test_an_answer_with_urls_is_one_that_the_client_reads(large_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hub.uploads.PRESIGNED_MAX", 2)
    ids = [f"{number:064x}" for number in range(4)]
    said = presign(large_world, ids)
    assert (set(said["presigned"]), said["inline"]) == (set(ids[:2]), ids[2:])  # type: ignore[call-overload]


def test_looking_at_what_has_arrived_ends_in_time(
    large_world: World, history: History, tip: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading all uploads of an interrupted push may take longer than the client waits for an answer."""
    large = max(history.objects_of([tip]), key=lambda item: len(history.contents[item]))
    put(presign(large_world, [large])["presigned"][large], LARGE)  # type: ignore[index]
    monkeypatch.setattr("hub.wire.muse.COLLECT_SECONDS", -1.0)
    assert missing(large_world, [large]) == [large]
    monkeypatch.undo()
    assert missing(large_world, [large]) == []
