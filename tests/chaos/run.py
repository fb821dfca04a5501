"""One run: fire for so many seconds, then silence, then proof."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg

from tests.chaos.plan import Blow, blows
from tests.chaos.producer import Producer
from tests.chaos.proof import BACK_SECONDS_MAX, check, figures, recoveries
from tests.chaos.world import World

PRODUCERS = 2
DRAIN_SECONDS_MAX = 120.0
QUIET = "SELECT NOT EXISTS (SELECT FROM tasks.job WHERE finished_at IS NULL)"


def run(
    seed: int, seconds: float, *, back_seconds_max: float = BACK_SECONDS_MAX, logs: Path | None = None
) -> dict[str, Any]:
    """Run and return the figures; raises AssertionError when a promise was broken.

    `back_seconds_max`: how long the throughput may take to come back. `logs`: where to copy the logs.
    """
    with World(seed, logs) as world:
        producers = [Producer(world.url, seed * 1000 + number) for number in range(PRODUCERS)]
        with ExitStack() as stack:
            for producer in producers:
                stack.callback(producer.stop)
                producer.start()
            restarts = _fire(world, blows(seed, seconds), seconds)
        drained = world.until(QUIET, seconds=DRAIN_SECONDS_MAX)
        world.stop()
        with world.connect() as conn:
            check(conn)
            back = recoveries(conn, restarts)
            report = {
                "seed": seed,
                "seconds": seconds,
                **figures(conn),
                "killed": world.killed,
                "enqueues_unconfirmed": sum(producer.refused for producer in producers),
                "restarts": back,
                "drained_seconds": round(drained, 2),
            }
        assert not (lines := world.unexpected()), lines
    assert back[0]["before_per_second"], f"nothing ran before the first restart: {back}"
    assert all(each["back_seconds"] <= back_seconds_max for each in back), back
    return report


def _fire(world: World, planned: list[Blow], seconds: float) -> list[dict[str, float]]:
    """Strike each blow at its time. Returns the instants of the restarts.

    After a restart there is time for the throughput to come back: the next one, and the end, wait for that.
    """
    restarts: list[dict[str, float]] = []
    began = time.monotonic()
    quiet_until = began
    for blow in planned:
        time.sleep(max(0.0, began + blow.at - time.monotonic()))  # the plan is a timetable
        world.check()
        try:
            match blow.kind:
                case "restart":
                    time.sleep(max(0.0, quiet_until - time.monotonic()))
                    restarts.append(world.restart())
                    quiet_until = time.monotonic() + BACK_SECONDS_MAX
                case "kill worker":
                    world.kill_worker(blow.pick)
                case "kill sweep":
                    world.kill_sweep(blow.pick)
                case "cut connection":
                    world.cut_connection(blow.pick)
        except psycopg.errors.AdminShutdown:
            continue  # it was our own
    time.sleep(max(0.0, began + seconds - time.monotonic(), quiet_until - time.monotonic()))
    return restarts
