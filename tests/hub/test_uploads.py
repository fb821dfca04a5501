"""Large objects that the Muse client uploads by URL: straight into the object store, or through the hub."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

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
def presigned_world(new_world: Callable[..., World], s3_store: Store) -> World:
    """A hub whose store clients reach."""
    return new_world(archive=s3_store)


@pytest.fixture
def relayed_world(new_world: Callable[..., World], s3_store: Store) -> World:
    """A hub whose store clients can't reach: it takes the objects itself."""
    return new_world(archive=s3_store, presign=False)


@pytest.fixture(params=["presigned", "relayed"])
def large_world(request: pytest.FixtureRequest) -> World:
    found: World = request.getfixturevalue(f"{request.param}_world")
    return found


@pytest.fixture
def tip(history: History) -> str:
    return history.commit({"large.bin": LARGE, "small.txt": b"small", "empty": b""})


def presign(world: World, object_ids: list[str]) -> dict[str, Any]:
    answer = world.post("/presign", {"object_ids": object_ids, "direction": "put"}, muse=True)
    assert answer.status_code == 200, answer.text
    return dict(msgpack.unpackb(answer.data))


def put(world: World, object_id: str, content: bytes) -> None:
    """As the client does: urllib gives the body a content type of its own."""
    said = presign(world, [object_id])
    assert said["inline"] == []
    url = said["presigned"][object_id]
    if world.hub.services.settings.presign:
        request = urllib.request.Request(url, data=content, method="PUT")
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 200
    else:
        form = "application/x-www-form-urlencoded"
        assert world.client.put(url, data=content, content_type=form).status_code == 200


def missing(world: World, object_ids: list[str]) -> list[str]:
    answer = world.post("/filter-objects", {"object_ids": object_ids}, muse=True)
    return list(msgpack.unpackb(answer.data)["missing"])


def test_an_upload_counts_as_held_once_it_has_arrived(large_world: World, history: History, tip: str) -> None:
    large, small = sorted(history.objects_of([tip]), key=lambda item: -len(history.contents[item]))
    presign(large_world, [large])
    assert set(missing(large_world, [large, small])) == {large, small}
    put(large_world, large, LARGE)
    assert missing(large_world, [large, small]) == [small]


def test_a_push_adopts_what_was_uploaded(large_world: World, history: History, tip: str) -> None:
    world = large_world
    large, small = sorted(history.objects_of([tip]), key=lambda item: -len(history.contents[item]))
    put(world, large, LARGE)
    world.post("/push/objects", {"objects": [{"object_id": small, "content": b"small"}]}, muse=True)
    push = {"bundle": history.bundle([tip]), "branch": "main", "force": False}
    assert world.post("/push", push, muse=True).status_code == 200
    world.drain()
    fetched = msgpack.unpackb(world.post("/fetch", {"want": [tip], "have": []}, muse=True).data)
    assert {item["object_id"]: item["content"] for item in fetched["objects"]} == {large: LARGE, small: b"small"}
    with pytest.raises(NotFound):
        world.archive.head(upload_key(world.repository_id, large))


def test_other_bytes_are_refused_at_the_push_and_removed(presigned_world: World, history: History) -> None:
    world = presigned_world
    tip = history.commit({"large.bin": LARGE})
    (large,) = history.objects_of([tip])
    put(world, large, b"other bytes")
    push = {"bundle": history.bundle([tip]), "branch": "main", "force": False}
    refused(world.post("/push", push, muse=True), 422, large)
    assert world.heads() == {}
    put(world, large, LARGE)
    assert world.post("/push", push, muse=True).status_code == 200


def test_after_a_url_that_is_not_good_any_more_the_next_push_works(presigned_world: World, history: History) -> None:
    """The client ends with a traceback, and asks for a new one in its next push."""
    world = presigned_world
    tip = history.commit({"large.bin": LARGE})
    (large,) = history.objects_of([tip])
    url = re.sub("X-Amz-Date=2[0-9]{3}", "X-Amz-Date=2020", presign(world, [large])["presigned"][large])
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(urllib.request.Request(url, data=LARGE, method="PUT"), timeout=30)
    error.value.close()
    assert error.value.code == 403
    assert missing(world, [large]) == [large]
    put(world, large, LARGE)
    push = {"bundle": history.bundle([tip]), "branch": "main", "force": False}
    assert world.post("/push", push, muse=True).status_code == 200


def test_an_object_that_could_never_be_fetched_is_refused_with_a_way_out(
    large_world: World, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = large_world
    monkeypatch.setattr("hub.uploads.MUSE_OBJECT_BYTES", len(LARGE) - 1)
    tip = history.commit({"large.bin": LARGE})
    (large,) = history.objects_of([tip])
    put(world, large, LARGE)
    push = {"bundle": history.bundle([tip]), "branch": "main", "force": False}
    answer = world.post("/push", push, muse=True)
    refused(answer, 413, large[:12], f"{len(LARGE)} bytes", "packhouse push")
    assert world.heads() == {}
    monkeypatch.setattr("hub.uploads.MUSE_OBJECT_BYTES", len(LARGE))
    put(world, large, LARGE)
    assert world.post("/push", push, muse=True).status_code == 200


def test_an_object_that_is_taken_leaves_room_in_an_answer() -> None:
    around = object_size(0) + 1_000_000
    assert MUSE_OBJECT_BYTES + around < ANSWER_BYTES


def test_an_upload_of_other_bytes_is_still_missing(presigned_world: World, history: History, tip: str) -> None:
    assert tip
    large = max(history.contents, key=lambda item: len(history.contents[item]))
    put(presigned_world, large, b"other bytes")
    assert missing(presigned_world, [large]) == [large]
    with pytest.raises(NotFound):
        presigned_world.archive.head(upload_key(presigned_world.repository_id, large))


def test_an_upload_for_one_repository_is_not_held_by_another(large_world: World, history: History, tip: str) -> None:
    assert tip
    world = large_world
    large = max(history.contents, key=lambda item: len(history.contents[item]))
    put(world, large, LARGE)
    world.repository("alice/other")
    world.base = "/alice/other"
    assert missing(world, [large]) == [large]


def test_where_the_store_cannot_presign_the_hub_takes_all(world: World, history: History, tip: str) -> None:
    object_ids = history.objects_of([tip])
    said = presign(world, object_ids)
    assert (set(said["presigned"]), said["inline"]) == (set(object_ids), [])
    assert all(url.startswith("http://localhost/-/objects/") for url in said["presigned"].values())


def test_only_uploads_are_presigned(world: World) -> None:
    assert world.post("/presign", {"object_ids": [], "direction": "get"}, muse=True).status_code == 422


def test_an_answer_with_urls_is_one_that_the_client_reads(large_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hub.wire.muse.PRESIGNED_MAX", 2)
    ids = [f"{number:064x}" for number in range(4)]
    said = presign(large_world, ids)
    assert (set(said["presigned"]), said["inline"]) == (set(ids[:2]), ids[2:])


def test_looking_at_what_has_arrived_ends_in_time(
    large_world: World, history: History, tip: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading all uploads of an interrupted push may take longer than the client waits for an answer."""
    large = max(history.objects_of([tip]), key=lambda item: len(history.contents[item]))
    put(large_world, large, LARGE)
    monkeypatch.setattr("hub.wire.muse.COLLECT_SECONDS", -1.0)
    assert missing(large_world, [large]) == [large]
    monkeypatch.undo()
    assert missing(large_world, [large]) == []
