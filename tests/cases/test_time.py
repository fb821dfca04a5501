"""A year of periodic tasks in two zones, with schedulers that stop, come late and have their clock set back."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest

import tasks
from tasks import queue
from tasks.periodic import Scheduler, nominal_time

pytestmark = pytest.mark.integration

Db = psycopg.Connection[Any]
START, END = datetime(2027, 1, 1, tzinfo=UTC), datetime(2028, 1, 1, tzinfo=UTC)
SCHEDULES = {
    "night.berlin": ("30 2 * * *", "Europe/Berlin"),
    "night.pacific": ("30 2 * * *", "US/Pacific"),
    "midnight.berlin": ("0 0 * * *", "Europe/Berlin"),
    "hourly.pacific": ("0 * * * *", "US/Pacific"),
}


def instants(seed: int) -> list[datetime]:
    """When the schedulers look: mostly every half hour, at times after days, at times a little back in time."""
    chance = random.Random(seed)
    at, found = START, []
    while at < END:
        found.append(at)
        step = chance.choices([30, 31, 12 * 60, 3 * 24 * 60, -1.5], [60, 20, 15, 4, 1])[0]
        at += timedelta(minutes=step)
    return [*found, END]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_year_has_each_nominal_time_once_whoever_looks_and_when(db: Db, seed: int) -> None:
    """Case 30: two schedulers, long stops, a clock that is set back; the short and the long days as the table says."""
    app = tasks.App("under.test")
    for name, (cron, tz) in SCHEDULES.items():
        app.periodic(cron, tz=tz, missed="all")(app.task(name)(lambda: None))
    schedulers = [Scheduler(app), Scheduler(app)]
    chance = random.Random(seed)
    for now in instants(seed):
        chance.shuffle(schedulers)
        for scheduler in schedulers:
            scheduler.tick(db, now=now)
    for name, (_, tz) in SCHEDULES.items():
        times = _nominal_times(db, name)
        expected = list(takewhile(lambda at: at <= END, app.schedules[name].fires(START)))
        assert times == expected
        days = Counter(at.astimezone(ZoneInfo(tz)).date() for at in times)
        if not name.startswith("hourly"):
            assert set(days.values()) == {1}, "once on the short day and once on the long one"


def _nominal_times(db: Db, task: str) -> list[datetime]:
    found = (nominal_time(job.dedup_key) for job in queue.list_jobs(db, task=task, limit=100_000))
    return sorted(at for at in found if at is not None)
