from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

import tasks
from tasks import operate, queue
from tasks.periodic import MISSED_PAGE_MAX, PAGE_MAX, Scheduler, nominal_time, read_schedules
from tasks.testing import drain
from tasks.timers import Timers
from tests.tasks.running import WAIT_SECONDS, make_app

pytestmark = pytest.mark.integration

Connection = psycopg.Connection[Any]
START = datetime(2027, 3, 27, 12, tzinfo=UTC)


def hours(count: float) -> datetime:
    return START + timedelta(hours=count)


@pytest.fixture
def app() -> tasks.App:
    return tasks.App("under.test")


def nightly(app: tasks.App, **options: Any) -> None:
    app.periodic(**{"cron": "30 2 * * *", "tz": "Europe/Berlin", **options})(app.task("nightly")(lambda: None))


def nominal_times(conn: Connection) -> list[datetime]:
    found = (nominal_time(job.dedup_key) for job in queue.list_jobs(conn, limit=1000))
    return sorted(at for at in found if at is not None)


def skipped(conn: Connection, app: tasks.App) -> int:
    return sum(row.skipped for row in read_schedules(conn, list(app.schedules.values())))


def test_schedule_begins_when_it_is_first_seen(db: Connection, app: tasks.App) -> None:
    nightly(app, missed="all")
    assert Scheduler(app).tick(db, now=START) == []
    assert nominal_times(db) == []


def test_one_job_per_nominal_time_whoever_looks_and_how_often(db: Connection, app: tasks.App) -> None:
    """Case 30: any number of schedulers; the short day has one job, at the first instant after the gap."""
    nightly(app)
    schedulers = [Scheduler(app) for _ in range(3)]
    for minute in range(0, 48 * 60, 10):
        for scheduler in schedulers:
            scheduler.tick(db, now=START + timedelta(minutes=minute))
    assert nominal_times(db) == [datetime(2027, 3, 28, 1, tzinfo=UTC), datetime(2027, 3, 29, 0, 30, tzinfo=UTC)]
    assert skipped(db, app) == 0


def test_jobs_of_the_past_may_be_pruned_and_do_not_come_again(db: Connection, app: tasks.App) -> None:
    nightly(app)
    scheduler = Scheduler(app)
    scheduler.tick(db, now=START)
    scheduler.tick(db, now=hours(24))
    (claim,) = queue.claim_jobs(db, worker="w", tasks=["nightly"], queues=["default"], limit=9, now=hours(24))
    queue.finish_job(db, claim.ref, now=hours(24))
    assert operate.prune_jobs(db, keep={"succeeded": 60.0}, now=hours(25)) == 1
    assert [scheduler.tick(db, now=hours(number)) for number in (24, 25, 26)] == [[], [], []]
    assert nominal_times(db) == []


def test_clock_that_is_stepped_back_makes_no_second_job(db: Connection, app: tasks.App) -> None:
    """Case 30."""
    nightly(app)
    scheduler = Scheduler(app)
    for now in (START, hours(13.01), hours(12.98), hours(13.02)):
        scheduler.tick(db, now=now)
    assert len(nominal_times(db)) == 1


def test_late_tick_of_any_lateness_is_not_dropped(db: Connection, app: tasks.App) -> None:
    """Case 30: a scheduler that is stopped from before to after the tick."""
    nightly(app)
    scheduler = Scheduler(app)
    scheduler.tick(db, now=START)
    scheduler.tick(db, now=hours(13 + 23))
    assert nominal_times(db) == [hours(13)]


@pytest.mark.parametrize(
    ("missed", "back_after_hours", "expected", "left_out"),
    [
        ("one", 24 * 3 + 14, [datetime(2027, 3, 31, 0, 30, tzinfo=UTC)], 3),
        ("all", 24 * 3 + 14, [hours(13), *(hours(12.5 + 24 * day) for day in (1, 2, 3))], 0),
        ("none", 24 * 3 + 14, [], 4),
        ("none", 12.5 + 24 * 3 + 0.01, [datetime(2027, 3, 31, 0, 30, tzinfo=UTC)], 3),
    ],
)
def test_missed_nominal_times_follow_the_policy(
    db: Connection, app: tasks.App, missed: str, back_after_hours: float, expected: list[datetime], left_out: int
) -> None:
    nightly(app, missed=missed)
    scheduler = Scheduler(app)
    scheduler.tick(db, now=START)
    scheduler.tick(db, now=hours(back_after_hours))
    assert nominal_times(db) == expected
    assert skipped(db, app) == left_out


@pytest.mark.parametrize(("missed", "per_tick"), [("all", PAGE_MAX), ("one", MISSED_PAGE_MAX)])
def test_long_downtime_is_worked_off_in_pages(db: Connection, app: tasks.App, missed: Any, per_tick: int) -> None:
    app.periodic(every=1, missed=missed)(app.task("often")(lambda: None))
    scheduler = Scheduler(app)
    scheduler.tick(db, now=START)
    back = START + timedelta(seconds=per_tick + 5)
    first, second = scheduler.tick(db, now=back), scheduler.tick(db, now=back)
    assert (len(first), len(second)) == ((PAGE_MAX, 5) if missed == "all" else (0, 1))
    assert nominal_times(db)[-1] == back
    assert skipped(db, app) == (0 if missed == "all" else per_tick + 4)


def test_schedule_that_somebody_else_has_locked_is_left_to_them(
    committed_db: Connection, connect: Callable[[], Connection], app: tasks.App
) -> None:
    nightly(app)
    Scheduler(app).tick(committed_db, now=START)
    committed_db.commit()
    assert len(Scheduler(app).tick(committed_db, now=hours(14))) == 1
    other = connect()
    assert Scheduler(app).tick(other, now=hours(14)) == []
    committed_db.rollback()
    assert len(Scheduler(app).tick(other, now=hours(14))) == 1


def test_changed_rhythm_begins_anew_and_leaves_the_old_version_alone(db: Connection, app: tasks.App) -> None:
    nightly(app)
    newer = tasks.App("under.test")
    nightly(newer, cron="0 * * * *", tz="UTC", missed="all")
    old, new = Scheduler(app), Scheduler(newer)
    old.tick(db, now=START)
    new.tick(db, now=hours(12.5))
    for now in (hours(13.1), hours(14.1)):
        old.tick(db, now=now)
        new.tick(db, now=now)
    # 01:00 UTC is a nominal time of both: it has one job.
    assert nominal_times(db) == [hours(13), hours(14)]
    for version, last in ((app, hours(13)), (newer, hours(14))):
        (row,) = read_schedules(db, list(version.schedules.values()))
        assert (row.last_nominal_at, row.skipped) == (last, 0)


def test_scheduler_looks_again_only_when_something_may_be_due(db: Connection, app: tasks.App) -> None:
    nightly(app)
    scheduler = Scheduler(app)
    assert not scheduler.idle
    scheduler.tick(db, now=START)
    assert scheduler.idle
    assert Scheduler(tasks.App("empty")).idle


def test_periodic_job_knows_its_nominal_time_and_its_arguments(database_url: str, committed_db: Connection) -> None:
    app = make_app(database_url, committed_db)
    seen: list[Any] = []

    @app.periodic(every=3600, args=["a"], kwargs={"size": 2})
    @app.task("report", bind=True)
    def report(self: tasks.Context, kind: str, *, size: int) -> None:
        seen.append((kind, size, self.request.nominal_at))

    with tasks.Worker(app) as worker:
        assert worker.schedule(now=START) == 0
        assert worker.schedule() == 0, "it is not asked again before something may be due"
    with tasks.Worker(app) as worker:
        assert worker.schedule(now=hours(1)) == 1
    drain(app, now=hours(2))
    assert seen == [("a", 2, hours(1))]


def test_jitter_spreads_the_schedules_of_one_instant_and_is_the_same_for_every_scheduler(
    db: Connection, app: tasks.App
) -> None:
    for number in range(20):
        app.periodic("0 0 * * *", jitter=600, name=f"nightly.{number}")(app.task(f"nightly.{number}")(lambda: None))
    midnight = START.replace(hour=0) + timedelta(days=1)
    for now in (START, midnight, midnight):
        Scheduler(app).tick(db, now=now)
    due = [job.available_at for job in queue.list_jobs(db)]
    assert nominal_times(db) == [midnight] * 20
    assert len({at.minute for at in due}) > 4
    assert all(midnight <= at < midnight + timedelta(minutes=10) for at in due)
    again = [schedule.new_job(midnight).available_at for schedule in app.schedules.values()]
    assert sorted(due) == sorted(at for at in again if at is not None)


def test_key_of_another_job_is_no_nominal_time() -> None:
    assert nominal_time(None) is None
    assert nominal_time('["repo",1]') is None
    assert nominal_time("2027-01-01T00:00:00+00:00") is None


def test_jitter_is_a_number_of_seconds(app: tasks.App) -> None:
    with pytest.raises(ValueError, match="jitter must be a number from 0 to 86400"):
        nightly(app, jitter=-1)


def test_periodic_refuses_what_makes_no_schedule(app: tasks.App) -> None:
    task = app.task("note")(lambda text="": text)
    for options, said in (
        ({}, "one of the two"),
        ({"cron": "0 0 * * *", "every": 5}, "one of the two"),
        ({"every": 60, "tz": "UTC"}, "tz= goes with cron="),
        ({"every": 0}, "every: must be"),
        ({"cron": "0 0 * *"}, "five fields"),
        ({"every": 60, "missed": "some"}, "missed must be one, all or none"),
        ({"every": 60, "name": "a b"}, "schedule 'a b'"),
        ({"every": 60, "kwargs": {"text": object()}}, "not a JSON value"),
    ):
        with pytest.raises(ValueError, match=said):
            app.periodic(**options)(task)
    with pytest.raises(TypeError, match="note: got an unexpected keyword argument 'size'"):
        app.periodic(every=60, kwargs={"size": 1})(task)
    with pytest.raises(TypeError, match="above @app.task"):
        app.periodic(every=60)(lambda: None)  # type: ignore[arg-type]
    assert not app.schedules


def test_two_schedules_of_one_task_need_two_names(app: tasks.App) -> None:
    task = app.task("note")(lambda: None)
    app.periodic(every=timedelta(minutes=1))(task)
    with pytest.raises(ValueError, match="give another name="):
        app.periodic(every=120)(task)
    app.periodic(every=120, name="note.often")(task)
    assert list(app.schedules) == ["note", "note.often"]


def test_periodic_task_has_no_dedup_key_of_its_own(app: tasks.App) -> None:
    task = app.task("note", dedup=tasks.Dedup())(lambda: None)
    with pytest.raises(ValueError, match="exclude each other"):
        app.periodic(every=60)(task)


def test_every_worker_looks_after_the_schedules(database_url: str, committed_db: Connection) -> None:
    app = make_app(database_url, committed_db)
    ran = threading.Event()
    app.periodic(every=1)(app.task("often")(ran.set))
    worker = tasks.Worker(app, grace=0)
    timers = Timers(worker, listen=False, poll=0.1)
    timers.start()
    try:
        assert ran.wait(WAIT_SECONDS)
    finally:
        timers.stop()
        worker.close()
