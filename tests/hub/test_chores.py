"""The tasks that nobody waits for run also where workers are never idle."""

from __future__ import annotations

from pathlib import Path

import pytest

import tasks
from hub.chores import GC, INTEL, LAST, LAST_COMMITS, QUEUE, REPACK
from hub.work import INDEX, PREBUILD
from tasks.testing import drain
from tests.hub.racing import pushed
from tests.hub.views import jobs
from tests.hub.world import History, World

pytestmark = pytest.mark.integration


def test_worker_of_the_chores_runs_them_while_others_are_waited_for(world: World, history: History) -> None:
    pushed(world.push_mpack(history, *history.line(1)))
    with tasks.Worker(world.hub.work.app, queues=[QUEUE], concurrency=1) as worker:
        ran = []
        while settled := worker.once():
            ran += [one.task for one in settled]
    assert sorted(ran) == sorted([GC, LAST_COMMITS]), "the others wait for the index"
    assert {job.status for task in (INDEX, PREBUILD) for job in jobs(world, task)} == {"pending"}


def test_worker_of_all_queues_takes_chores_last(world: World, history: History) -> None:
    pushed(world.push_mpack(history, *history.line(1)))
    ran = [one.task for one in drain(world.hub.work.app)]
    assert ran[:2] == [INDEX, PREBUILD]
    assert sorted(ran[2:]) == sorted([GC, LAST_COMMITS, INTEL])


def test_procfile_serves_the_queue_of_the_chores_alone_and_all_of_them_are_in_it(world: World) -> None:
    app = world.hub.work.app
    options = {name: app[name].options for name in (GC, "gc.all", REPACK, LAST_COMMITS, INTEL)}
    assert {(each.queue, each.priority) for each in options.values()} == {(QUEUE, LAST)}
    assert app.queues() == tuple(sorted([QUEUE, "default"]))
    lines = (Path(__file__).parents[2] / "Procfile").read_text().splitlines()
    assert f"chores: packhouse worker --queue {QUEUE} --concurrency 1" in lines
    assert "worker: packhouse worker" in lines
