"""Periodic tasks without a leader: any number of schedulers, one job per (schedule, nominal time).

Each schedule has a row in tasks.schedule with the last nominal time that was dealt with. A scheduler locks the row,
enqueues what has come due since, and moves the time on, in one transaction; the job's key (mode `once`) names schedule
and nominal time. All of it by the database's clock.
"""

from __future__ import annotations

import itertools
import logging
import re
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal

from psycopg.rows import class_row

from tasks import queue
from tasks.cron import EPOCH, Cron, Every, Rhythm
from tasks.db import Conn, cursor, statement
from tasks.options import check_number
from tasks.payload import check_instant
from tasks.request import new_job_params

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tasks.app import App
    from tasks.call import CallOptions
    from tasks.job import Enqueued, NewJob
    from tasks.task import Task

log = logging.getLogger(__name__)

Missed = Literal["one", "all", "none"]
MISSED: tuple[Missed, ...] = ("one", "all", "none")
ON_TIME_SECONDS = 60.0
"""With missed="none": how late a nominal time may still be dealt with."""
PAGE_MAX = 1000
"""Nominal times that one tick deals with; the next tick goes on."""
MISSED_PAGE_MAX = 20_000
"""The same, where all of a full page but the last have no job of their own."""
JITTER_SECONDS_MAX = 24 * 3600.0
LOOK_SECONDS_MAX = 30.0
"""Longest pause between two looks: the database's clock may be set."""
_KEY = re.compile(r"periodic:[^@]+@(.+)")


@dataclass(frozen=True, slots=True)
class Periodic:
    """One schedule of one task. Made by `@app.periodic(…)`."""

    name: str
    task: Task[..., Any]
    rhythm: Rhythm
    missed: Missed
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    jitter: float = 0.0

    def fires(self, after: datetime) -> Iterator[datetime]:
        """Every nominal time later than `after`, in UTC, without end."""
        return self.rhythm.fires(after)

    def new_job(self, nominal_at: datetime) -> NewJob:
        """The job of one nominal time; its key names it, and says by how much of the jitter it is late."""
        key = f"periodic:{self.name}@{nominal_at.isoformat()}"
        options: CallOptions = {"dedup_key": key, "mode": "once"}
        if self.jitter:
            options["eta"] = nominal_at + timedelta(seconds=self.jitter * _fraction(key))
        return self.task.new_job(self.args, self.kwargs, **options)

    def check(self) -> None:
        """Refuse now what every enqueue would refuse. Raises TypeError, PayloadError."""
        new_job_params(self.new_job(next(self.fires(EPOCH))))


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """One row of tasks.schedule, and the database's clock when it was read.

    `skipped`: nominal times that got no job of their own, by the policy for missed ones.
    """

    name: str
    rhythm: str
    last_nominal_at: datetime
    skipped: int
    now: datetime


def rhythm_of(cron: str | None, every: float | timedelta | None, tz: str | None) -> Rhythm:
    """Make the rhythm of what `@app.periodic` was given. Raises ValueError."""
    if (cron is None) == (every is None):
        raise ValueError("periodic: give cron='30 2 * * *' or every=seconds, one of the two")
    if cron is not None:
        return Cron(cron, "UTC" if tz is None else tz)
    if tz is not None:
        raise ValueError("periodic: tz= goes with cron=; every= counts elapsed time and knows no time zone")
    return Every(every.total_seconds() if isinstance(every, timedelta) else every)  # type: ignore[arg-type]


def maker(
    *,
    cron: str | None,
    every: float | timedelta | None,
    tz: str | None,
    missed: Missed,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    jitter: float,
) -> Callable[[Task[..., Any], str], Periodic]:
    """Check what `@app.periodic` was given, before it meets its task. Raises ValueError."""
    rhythm = rhythm_of(cron, every, tz)
    if missed not in MISSED:
        raise ValueError(f"periodic: missed must be one, all or none, not {missed!r}")
    check_number("jitter", jitter, 0, JITTER_SECONDS_MAX)

    def make(task: Task[..., Any], name: str) -> Periodic:
        if task.options.dedup is not None:
            raise ValueError(f"{task.name}: periodic and dedup= exclude each other: the key is the nominal time")
        made = Periodic(name, task, rhythm, missed, tuple(args), dict(kwargs or {}), jitter)
        made.check()
        return made

    return make


def _fraction(key: str) -> float:
    """A number from 0 to 1 that is the same wherever and whenever it is asked for."""
    return int.from_bytes(sha256(key.encode()).digest()[:4], "big") / 2**32


def nominal_time(dedup_key: str | None) -> datetime | None:
    """The nominal time of a periodic task's job, read from its key; None for any other job."""
    match = _KEY.fullmatch(dedup_key or "")
    return datetime.fromisoformat(match[1]) if match else None


def read_schedules(conn: Conn, schedules: Sequence[Periodic], *, now: datetime | None = None) -> list[ScheduleRow]:
    """Read the rows of these schedules; one that has never been seen has none yet."""
    return _rows(conn, "list_schedules", _keys(schedules, now))


def start_schedules(conn: Conn, schedules: Sequence[Periodic], *, now: datetime | None = None) -> None:
    """Make the missing rows: a schedule begins when it is first seen, nothing before that was missed.

    A changed rhythm is a schedule of its own, so that workers of two versions may run side by side.
    """
    with cursor(conn, class_row(ScheduleRow)) as cur:
        cur.execute(statement("start_schedules"), _keys(schedules, now))


def enqueue_due(conn: Conn, schedule: Periodic, *, now: datetime | None = None) -> list[Enqueued]:
    """Enqueue what has come due since the last time, in the caller's transaction.

    Returns nothing when another scheduler is at this schedule just now.
    """
    with cursor(conn, class_row(ScheduleRow)) as cur:
        row = cur.execute(statement("lock_schedule"), {**_key(schedule), "now": check_instant("now", now)}).fetchone()
    if row is None:
        return []
    page = PAGE_MAX if schedule.missed == "all" else MISSED_PAGE_MAX
    fires = itertools.takewhile(lambda at: at <= row.now, schedule.fires(row.last_nominal_at))
    due = list(itertools.islice(fires, page))
    if not due:
        return []
    chosen = _choose(schedule.missed, due, row.now, more=len(due) == page)
    made = [queue.enqueue_job(conn, schedule.new_job(at), now=now) for at in chosen]
    skipped = len(due) - len(chosen)
    with cursor(conn, class_row(ScheduleRow)) as cur:
        cur.execute(statement("advance_schedule"), {**_key(schedule), "last": due[-1], "skipped": skipped})
    if skipped:
        log.warning("schedule %s: %d nominal times up to %s got no job of their own", schedule.name, skipped, due[-1])
    return made


def _choose(missed: Missed, due: list[datetime], now: datetime, *, more: bool) -> list[datetime]:
    """Those of `due` that get a job; `more`: later ones are due, too."""
    if missed == "all":
        return due
    late = missed == "none" and now - due[-1] > timedelta(seconds=ON_TIME_SECONDS)
    return [] if more or late else due[-1:]


def _key(schedule: Periodic) -> dict[str, Any]:
    return {"name": schedule.name, "rhythm": schedule.rhythm.text}


def _keys(schedules: Sequence[Periodic], now: datetime | None) -> dict[str, Any]:
    return {
        "names": [schedule.name for schedule in schedules],
        "rhythms": [schedule.rhythm.text for schedule in schedules],
        "now": check_instant("now", now),
    }


def _rows(conn: Conn, name: str, params: Mapping[str, Any]) -> list[ScheduleRow]:
    with cursor(conn, class_row(ScheduleRow)) as cur:
        return cur.execute(statement(name), params).fetchall()


class Scheduler:
    """Looks at an app's schedules and enqueues what is due. Any number of them may run, in any process."""

    def __init__(self, app: App) -> None:
        self._schedules = list(app.schedules.values())
        self._look_at = 0.0

    @property
    def idle(self) -> bool:
        """True while nothing can be due, as far as the last look could tell."""
        return not self._schedules or time.monotonic() < self._look_at

    def tick(self, conn: Conn, *, now: datetime | None = None) -> list[Enqueued]:
        """Enqueue what is due, in the caller's transaction."""
        rows = {(row.name, row.rhythm): row for row in read_schedules(conn, self._schedules, now=now)}
        if len(rows) < len(self._schedules):
            start_schedules(conn, self._schedules, now=now)
            rows = {(row.name, row.rhythm): row for row in read_schedules(conn, self._schedules, now=now)}
        made: list[Enqueued] = []
        pause = LOOK_SECONDS_MAX
        for schedule in self._schedules:
            row = rows[schedule.name, schedule.rhythm.text]
            wait = (next(schedule.fires(row.last_nominal_at)) - row.now).total_seconds()
            if wait > 0:
                pause = min(pause, wait)
                continue
            pause = 0.0
            made += enqueue_due(conn, schedule, now=now)
        self._look_at = time.monotonic() + pause
        return made
