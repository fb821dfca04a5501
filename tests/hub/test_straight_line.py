"""A push becomes a clone, by both transports."""

from __future__ import annotations

import io

import msgpack
import pytest

import hub.write_history
from hub.pack.format import Kind, Limits
from hub.pack.verify import verify_pack
from hub.work import INDEX, PREBUILD
from tests.hub.views import fetch_mpack, model
from tests.hub.world import History, World

pytestmark = pytest.mark.integration


def clone_mpack(world: World) -> dict[str, bytes]:
    """The default branch's files, cloned by Part B."""
    answer = world.post("/fetch/mpack", {"want": [], "have": []}, token=None)
    assert answer.status_code == 200, answer.data
    said = answer.get_json()
    raw = world.client.get(said["url"]).data
    assert len(raw) == said["size"]
    pack = verify_pack(io.BytesIO(raw), limits=Limits(), expect_id=said["mpack_id"])
    head = said["tips"][said["default_branch"]]
    snapshot_id = next(commit.snapshot_id for commit in pack.commits() if commit.commit_id == head)
    manifest = next(item.manifest for item in pack.snapshots() if item.snapshot_id == snapshot_id)
    return {path: pack.read(pack.find(Kind.OBJECT, object_id)) for path, object_id in manifest.items()}


@pytest.mark.parametrize("transport", ["mpack", "muse"])
def test_a_push_becomes_a_clone(world: World, history: History, transport: str) -> None:
    tip = history.line(5)[-1]
    push = world.push_mpack if transport == "mpack" else world.push_muse
    assert push(history, tip).status_code == 200
    assert {ran.task: ran.outcome for ran in world.drain()} == {INDEX: "succeeded", PREBUILD: "succeeded"}
    expected = {
        path: history.contents[object_id]
        for path, object_id in history.snapshots[history.commits[tip]["snapshot_id"]]["manifest"].items()
    }
    assert clone_mpack(world) == expected
    fetched = msgpack.unpackb(world.post("/fetch", {"want": [tip], "have": []}, token=None, muse=True).data)
    assert {item["commit_id"] for item in fetched["commits"]} == set(history.ancestors(tip))
    assert {item["object_id"] for item in fetched["objects"]} == set(history.objects_of(history.ancestors(tip)))


def test_more_manifests_than_wait_in_memory_are_all_written(
    world: World, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub.write_history, "AHEAD_BYTES", 1)
    tip = history.line(5)[-1]
    assert world.push_mpack(history, tip).status_code == 200
    world.drain()
    assert fetch_mpack(world) == model(history, [tip])
