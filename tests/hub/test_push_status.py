"""What the status of a push says once later pushes have come."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hub.work import PREBUILD
from storage import FaultyStore, MemoryStore, Unavailable
from tests.hub.racing import pushed
from tests.hub.views import drain_for_hours, jobs
from tests.hub.world import History, World

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("force", [False, True], ids=["grown", "overwritten"])
def test_push_whose_build_failed_is_prebuilt_by_a_later_one(
    new_world: Callable[..., World], history: History, force: bool
) -> None:
    broken = True

    def refuse(op: str, key: str, phase: str) -> None:
        if broken and op == "put" and phase == "before":
            raise Unavailable(key)

    world = new_world(cache=FaultyStore(MemoryStore(), hook=refuse))
    first, second = history.line(2)
    if force:
        second = history.commit({"f": b"another"})
    push_id = world.push_mpack(history, first).get_json()["push_id"]
    drain_for_hours(world, 12)
    assert world.get(f"/pushes/{push_id}").get_json()["status"] == "failed"
    broken = False
    pushed(world.push_mpack(history, second, force=force))
    assert world.get(f"/pushes/{push_id}").get_json()["status"] == "failed"
    world.drain()
    said = world.get(f"/pushes/{push_id}").get_json()
    assert said["status"] == "prebuilt"
    assert "reason" not in said
    assert [job.status for job in jobs(world, PREBUILD)] == ["failed", "succeeded"]
