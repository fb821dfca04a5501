"""A second repository with the same content is complete by itself, and tells nothing about the first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgpack
import pytest

from hub.models.repository import find_repository
from hub.repositories import delete_repository
from tests.hub.offers import refused
from tests.hub.racing import pushed
from tests.hub.views import fetch_mpack, fetch_muse, model
from tests.hub.world import History, World

pytestmark = pytest.mark.integration


@pytest.fixture
def tip(world: World, history: History) -> str:
    """Pushed by both transports into alice's private repository, indexed and prebuilt; bob has an empty one."""
    world.repository("alice/secret", private=True)
    world.base = "/alice/secret"
    first, second = history.line(2)
    pushed(world.push_muse(history, first))
    pushed(world.push_mpack(history, second))
    world.drain()
    world.token = world.user("bob")
    world.repository_id = world.repository("bob/copy")
    world.base = "/bob/copy"
    return second


@contextmanager
def by_muse(world: World, path: str, data: Any) -> Iterator[dict[str, Any]]:
    answer = world.post(path, data, muse=True)
    assert answer.status_code == 200, answer.data
    yield msgpack.unpackb(answer.data)


def test_objects_of_another_repository_are_missing_here(world: World, history: History, tip: str) -> None:
    wanted = history.objects_of(history.ancestors(tip))
    with by_muse(world, "/filter-objects", {"object_ids": wanted}) as said:
        assert said["missing"] == wanted
    with by_muse(world, "/presign", {"object_ids": wanted, "direction": "put"}) as said:
        assert sorted([*said["presigned"], *said["inline"]]) == wanted
    objects = [{"object_id": item, "content": history.contents[item]} for item in wanted]
    with by_muse(world, "/push/objects", {"objects": objects}) as said:
        assert said == {"stored": len(wanted), "skipped": 0}


def test_pack_of_another_repository_must_be_uploaded_here(world: World, history: History, tip: str) -> None:
    first = history.ancestors(tip)[-1]
    mpack_id, raw = history.mpack([tip], without=history.objects_of([first]))
    data = {"mpack_id": mpack_id, "size": len(raw), "branch": "main", "head": tip}
    asked = world.post("/push/mpack/presign", data).get_json()
    assert asked["upload"] is not None
    answer = world.post("/push/mpack", {"mpack_key": asked["mpack_key"], "branch": "main", "head": tip})
    refused(answer, 422, "upload")


def test_content_of_another_repository_is_not_had_by_naming_it(world: World, history: History, tip: str) -> None:
    """Neither objects, nor a snapshot, nor a parent count as here because they are there."""
    refused(world.post("/push", {"bundle": history.bundle([tip]), "branch": "main", "force": False}, muse=True), 422)
    bare = history.bundle(history.ancestors(tip))
    refused(world.post("/push", {"bundle": bare, "branch": "main", "force": False}, muse=True), 422)
    refused(world.post("/push", {"bundle": {**bare, "snapshots": []}, "branch": "main", "force": True}, muse=True), 422)
    assert world.heads() == {}


def test_commits_of_another_repository_are_unknown_here(world: World, history: History, tip: str) -> None:
    for path in ("/fetch", "/fetch/mpack"):
        refused(world.post(path, {"want": [tip], "have": []}, muse=path == "/fetch"), 404)
    with by_muse(world, "/negotiate", {"want": [], "have": history.ancestors(tip)}) as said:
        assert said["ack"] == []
        assert said["common_base"] is None
    for path in (f"/archive/{tip}.zip", f"/api/repositories/bob/copy/commits?ref={tip}"):
        url = path if path.startswith("/api/") else world.base + path
        refused(world.client.get(url, headers=world.headers()), 404)
    tag = {"tag_id": "5d0fb9a2-5a3c-4b6e-8b47-0c2c8a5d0001", "commit_id": tip, "tag": "x", "created_at": "now"}
    refused(world.post("/tags", {"tags": [tag]}, muse=True), 422)


def test_what_another_repository_has_makes_no_fetch_shorter(world: World, history: History, tip: str) -> None:
    """`have` counts what this repository knows; a commit of another one is as unknown as any."""
    own = history.commit({"f": b"own"})
    pushed(world.push_muse(history, own))
    world.drain()
    want = model(history, [own])
    assert fetch_mpack(world, [own], [tip]) == fetch_muse(world, [own], [tip]) == want


@pytest.mark.parametrize("transport", ["mpack", "muse"])
def test_copy_is_complete_and_outlives_the_first(world: World, history: History, tip: str, transport: str) -> None:
    pushed(world.push_mpack(history, tip) if transport == "mpack" else world.push_muse(history, tip))
    world.drain()
    with world.hub.services.sessions.begin() as session:
        secret = find_repository(session, "alice", "secret")
        assert secret is not None
        delete_repository(session, secret.repository_id)
    assert fetch_mpack(world) == fetch_muse(world, [tip]) == model(history, [tip])
    assert world.repository_id != secret.repository_id


def test_answers_are_those_of_a_hub_without_the_first_repository(world: World, history: History, tip: str) -> None:
    """Every answer about the unknown commit is word for word that about one that exists nowhere."""
    nowhere = tip[::-1]
    for path, data in (
        ("/fetch", {"want": ["?"], "have": []}),
        ("/fetch/mpack", {"want": ["?"], "have": []}),
        ("/negotiate", {"want": ["?"], "have": ["?"]}),
    ):
        there, away = (
            world.post(path, {key: [item] if value == ["?"] else value for key, value in data.items()}, muse=True)
            for item in (tip, nowhere)
        )
        assert there.status_code == away.status_code
        assert there.data.replace(tip.encode(), b"?") == away.data.replace(nowhere.encode(), b"?")
    for item in (tip, nowhere):
        said = msgpack.unpackb(world.post("/presign", {"object_ids": [item], "direction": "put"}, muse=True).data)
        assert ([*said["presigned"]], said["inline"]) == ([item], [])
