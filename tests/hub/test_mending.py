"""A pack whose stored bytes went bad, and the push that brings it once more."""

from __future__ import annotations

from typing import Any

import pytest

from hub.keys import archive_key
from hub.work import INDEX
from tests.hub.offers import refused
from tests.hub.views import drain_for_hours, fetch_mpack, model, rows
from tests.hub.world import History, World

pytestmark = pytest.mark.integration


def rot(world: World, mpack_id: str) -> None:
    """Let the stored bytes be wrong, and the index job find out."""
    world.archive.put(archive_key(world.repository_id, mpack_id), b"\0" * 100)
    drain_for_hours(world)


def status(world: World, said: dict[str, Any]) -> dict[str, Any]:
    return dict(world.get(f"/pushes/{said['push_id']}").get_json())


@pytest.mark.parametrize("branch", ["main", "elsewhere"])
def test_pack_is_mended_after_its_branch_has_moved_on(world: World, history: History, branch: str) -> None:
    """No branch moves, and the push that brought it stands again, prebuilt."""
    first, second = history.line(2)
    mpack_id, raw = history.mpack([first])
    said = world.push_bytes(mpack_id, raw, first).get_json()
    assert world.push_mpack(history, second).status_code == 200
    rot(world, mpack_id)
    assert status(world, said)["status"] == "failed"
    refused(world.post("/fetch/mpack", {}), 500, INDEX)
    again = world.push_bytes(mpack_id, raw, first, branch)
    assert again.status_code == 200
    assert again.get_json()["branch_heads"]["main"] == second
    assert (again.get_json()["push_id"] == said["push_id"]) == (branch == "main")
    world.drain()
    assert status(world, said)["status"] == "prebuilt"
    assert fetch_mpack(world) == model(history, [second])


def test_pack_is_mended_even_where_the_push_itself_is_refused(world: World, history: History) -> None:
    first, second = history.line(2)
    mpack_id, raw = history.mpack([first])
    said = world.push_bytes(mpack_id, raw, first).get_json()
    assert world.push_mpack(history, second).status_code == 200
    assert world.push_mpack(history, second, "other").status_code == 200
    rot(world, mpack_id)
    refused(world.push_bytes(mpack_id, raw, first, "other"), 409)
    world.drain()
    assert status(world, said)["status"] == "prebuilt"
    assert fetch_mpack(world) == model(history, [second])


def test_other_bytes_mend_nothing(world: World, history: History) -> None:
    first, second = history.line(2)
    mpack_id, raw = history.mpack([first])
    world.push_bytes(mpack_id, raw, first)
    world.push_mpack(history, second)
    rot(world, mpack_id)
    refused(world.push_bytes(mpack_id, bytes(len(raw)), first), 422)
    assert [state for (state,) in rows(world, "SELECT state FROM hub.mpack ORDER BY state")] == ["live", "quarantined"]


def test_status_says_which_job_has_failed_and_why(world: World, history: History) -> None:
    tip = history.line(1)[0]
    said = world.push_mpack(history, tip).get_json()
    waits = status(world, said)["why"]
    assert [why["task"] for why in waits] == [INDEX, "fetch.mpack.prebuild"]
    assert all(why["sentence"] for why in waits)
    rot(world, history.mpack([tip])[0])
    broken = status(world, said)
    assert broken["status"] == "failed"
    assert broken["reason"] == "mpack.index has quarantined: MPACK_CORRUPT"
    assert [why["job_id"] for why in broken["why"] if why["status"] == "quarantined"] == [broken["jobs"][0]["id"]]
