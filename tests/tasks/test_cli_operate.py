"""The commands that move jobs and queues, as a person and as a script see them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from click.testing import CliRunner, Result

import tasks
from tasks.cli import group
from tasks.testing import drain
from tests.tasks.running import job_row, later, make_app

pytestmark = pytest.mark.integration

Connection = psycopg.Connection[Any]
Run = Callable[..., Result]


@pytest.fixture
def app(database_url: str, committed_db: Connection) -> tasks.App:
    app = make_app(database_url, committed_db)
    app.task("note")(lambda text="": text)
    app.task("boom", max_attempts=1)(lambda: 1 / 0)
    app.task("slow", queue="slow")(lambda: None)
    return app


@pytest.fixture
def run(app: tasks.App) -> Run:
    command = group(lambda: app)
    return lambda *arguments: CliRunner().invoke(command, [str(argument) for argument in arguments])


def enqueue(app: tasks.App, conn: Connection, task: str = "note") -> Any:
    job = app[task].delay()
    conn.commit()
    return job.id


def test_retry_brings_a_failed_job_back_with_one_more_attempt(
    run: Run, app: tasks.App, committed_db: Connection
) -> None:
    job_id = enqueue(app, committed_db, "boom")
    drain(app)
    assert run("jobs", "retry", job_id, "--reason", "fixed it").output == f"{job_id} pending\n"
    row = job_row(committed_db, job_id)
    assert (row["status"], row["attempts_max"]) == ("pending", 2)


@pytest.mark.parametrize(("command", "status"), [("cancel", "cancelled"), ("quarantine", "quarantined")])
def test_waiting_jobs_are_ended_for_a_reason(
    run: Run, app: tasks.App, committed_db: Connection, command: str, status: str
) -> None:
    first, second = enqueue(app, committed_db), enqueue(app, committed_db)
    result = run("jobs", command, first, second, "--reason", "not needed", "--json")
    assert result.exit_code == 0
    assert json.loads(result.output) == [
        {"job_id": str(job_id), "status": status, "error": None} for job_id in (first, second)
    ]
    assert "not needed" in run("jobs", "why", first).output


def test_refused_job_does_not_stop_the_others_and_is_exit_code_1(
    run: Run, app: tasks.App, committed_db: Connection
) -> None:
    ended, waiting, unknown = enqueue(app, committed_db, "boom"), None, uuid4()
    drain(app)
    waiting = enqueue(app, committed_db)
    result = run("jobs", "cancel", ended, unknown, waiting, "--reason", "clean up")
    assert result.exit_code == 1
    assert result.stdout == f"{waiting} cancelled\n"
    assert result.stderr.splitlines() == [
        f"Error: job {ended} is at an end: failed",
        f"Error: there is no job {unknown}",
    ]
    assert run("jobs", "retry", waiting, "--reason", "again").exit_code == 0
    assert "has not reached an end: pending" in run("jobs", "retry", waiting, "--reason", "again").stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("jobs", "cancel", "--reason", "x"),
        ("jobs", "cancel", uuid4()),
        ("jobs", "cancel", uuid4(), "--reason", " "),
        ("jobs", "retry", "no-uuid", "--reason", "x"),
        ("jobs", "purge", "--keep", "pending", "3d"),
        ("jobs", "purge", "--keep", "failed", "3"),
        ("jobs", "purge", "--keep", "failed", "-1d"),
        ("jobs", "tail", "--every", "0"),
        ("queues", "pause"),
        ("queues", "pause", "a\x00b"),
        ("schedules", "--year", "12"),
    ],
)
def test_wrong_usage_is_exit_code_2(run: Run, arguments: tuple[object, ...]) -> None:
    assert run(*arguments).exit_code == 2


def test_purge_deletes_what_ended_longer_ago_than_told(run: Run, app: tasks.App, committed_db: Connection) -> None:
    enqueue(app, committed_db), enqueue(app, committed_db, "boom")
    drain(app)
    waiting = enqueue(app, committed_db)
    assert run("jobs", "purge").output == "purged=0\n"
    assert json.loads(run("jobs", "purge", "--keep", "succeeded", "0s", "--json").output) == {"purged": 1}
    assert run("jobs", "purge", "--keep", "failed", "0s", "--keep", "cancelled", "1d").output == "purged=1\n"
    assert [job["job_id"] for job in json.loads(run("jobs", "list", "--json").output)] == [str(waiting)]


def test_worker_prunes_what_the_app_does_not_keep(
    run: Run, app: tasks.App, committed_db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue(app, committed_db, "boom")
    for _ in range(5):
        enqueue(app, committed_db)
    drain(app)
    monkeypatch.setattr("tasks.worker.PRUNE_BITE", 2)
    with tasks.Worker(app) as worker:
        assert worker.prune(now=later()) == 0
        assert run("jobs", "purge").output == "purged=0\n"
        app.configure(keep={"succeeded": 60})
        assert worker.prune(now=later()) == 5
    assert [job["status"] for job in json.loads(run("jobs", "list", "--json").output)] == ["failed"]
    app.configure(keep={"failed": 0})
    assert run("jobs", "purge").output == "purged=1\n"
    with pytest.raises(tasks.PayloadError, match="keep: 'pending' is no end of a job"):
        app.configure(keep={"pending": 1})


def test_paused_queue_is_not_claimed_from_until_it_is_resumed(
    run: Run, app: tasks.App, committed_db: Connection
) -> None:
    job_id = enqueue(app, committed_db, "slow")
    assert run("queues", "pause", "slow", "--reason", "disk is full").output == "queue slow is paused\n"
    assert drain(app) == []
    listed = {row["queue"]: row for row in json.loads(run("queues", "list", "--json").output)}
    assert set(listed) == {"default", "slow"}
    assert (listed["slow"]["reason"], listed["slow"]["pending"]) == ("disk is full", 1)
    assert "disk is full" in run("jobs", "why", job_id).output
    assert run("queues", "list").output.splitlines()[0].split() == [
        *("queue", "paused_at", "reason", "pending", "due", "running"),
    ]
    assert json.loads(run("queues", "resume", "slow", "--json").output)["was_paused"]
    assert run("queues", "resume", "slow").output == "queue slow was not paused\n"
    assert len(drain(app)) == 1


def test_verify_prints_the_offenders_and_is_exit_code_1(run: Run, app: tasks.App, committed_db: Connection) -> None:
    job_id = enqueue(app, committed_db)
    drain(app)
    assert run("jobs", "verify").output == "no violations\n"
    assert (run("jobs", "verify", "--json").output, run("jobs", "verify").exit_code) == ("[]\n", 0)
    committed_db.execute("DELETE FROM tasks.ended_attempt WHERE job_id = %s", (job_id,))
    committed_db.commit()
    told = run("jobs", "verify", "--json")
    assert told.exit_code == 1
    assert {offender["job_id"] for offender in json.loads(told.output)} == {str(job_id)}
    assert str(job_id) in run("jobs", "verify").output


def test_stats_counts_every_status(run: Run, app: tasks.App, committed_db: Connection) -> None:
    enqueue(app, committed_db, "boom")
    drain(app)
    enqueue(app, committed_db)
    document = json.loads(run("jobs", "stats", "--json").output)
    assert document["counts"] == {"failed": 1, "pending": 1}
    assert document["due"] == 1
    lines = dict(line.split() for line in run("jobs", "stats").output.splitlines() if len(line.split()) == 2)
    assert (lines["failed"], lines["pending"], lines["running"]) == ("1", "1", "0")


def test_tail_of_a_job_ends_with_it_and_tells_how(run: Run, app: tasks.App, committed_db: Connection) -> None:
    good, bad = enqueue(app, committed_db), enqueue(app, committed_db, "boom")
    drain(app)
    told = run("jobs", "tail", good, "--every", "0.05")
    assert (told.exit_code, told.output.split()[1:]) == (0, [str(good), "note", "succeeded", "1/5"])
    told = run("jobs", "tail", bad, "--json")
    assert told.exit_code == 1
    assert json.loads(told.output)["last_error_code"] == "ZERO_DIVISION_ERROR"
    assert run("jobs", "tail", uuid4()).exit_code == 1


def test_tail_of_all_prints_each_change_once(
    app: tasks.App, committed_db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = iter(
        [
            lambda: (enqueue(app, committed_db), drain(app)),
            lambda: (enqueue(app, committed_db, "boom"), drain(app)),
            lambda: None,
        ]
    )

    def next_step(seconds: float) -> None:
        step = next(steps, None)
        if step is None:
            raise KeyboardInterrupt
        step()

    monkeypatch.setattr("tasks.cli_watch.time.sleep", next_step)
    enqueue(app, committed_db)
    drain(app)
    result = CliRunner().invoke(group(lambda: app), ["jobs", "tail"])
    assert result.exit_code == 0
    assert [line.split()[2:4] for line in result.output.splitlines()] == [["note", "succeeded"], ["boom", "failed"]]


def test_schedules_lists_rhythm_and_next_time(run: Run, app: tasks.App) -> None:
    assert run("schedules").output == "no schedules\n"
    app.periodic("30 2 * * *", tz="Europe/Berlin")(app["note"])
    (row,) = json.loads(run("schedules", "--json").output)
    assert (row["rhythm"], row["missed"], row["next_nominal_at"]) == ("cron 30 2 * * * Europe/Berlin", "one", None)
    with tasks.Worker(app) as worker:
        worker.schedule()
    (row,) = json.loads(run("schedules", "--json").output)
    assert row["next_nominal_at"] > row["last_nominal_at"]
    assert run("schedules").output.splitlines()[1].split()[:2] == ["note", "note"]


def test_schedules_of_a_year_are_printed_in_order_without_a_database() -> None:
    app = tasks.App("under.test")
    app.periodic("30 2 * * *", tz="Europe/Berlin")(app.task("nightly")(lambda: None))
    app.periodic(every=12 * 3600)(app.task("often")(lambda: None))
    command = group(lambda: app)
    lines = CliRunner().invoke(command, ["schedules", "--year", "2027"]).output.splitlines()
    assert len(lines) == 3 * 365
    assert "Sun 2027-03-28 03:00:00 CEST  2027-03-28T01:00:00Z  nightly" in lines
    assert "Sun 2027-10-31 02:30:00 CEST  2027-10-31T00:30:00Z  nightly" in lines
    instants = [line.split("  ")[1] for line in lines]
    assert instants == sorted(instants)
    fires = json.loads(CliRunner().invoke(command, ["schedules", "--year", "2027", "--name", "often", "--json"]).output)
    assert fires[1] == {
        "name": "often",
        "nominal_at": "2027-01-01T12:00:00+00:00",
        "local": "2027-01-01T12:00:00+00:00",
    }
    unknown = CliRunner().invoke(command, ["schedules", "--name", "x"])
    assert (unknown.exit_code, unknown.output) == (1, "Error: there is no schedule x; there are nightly, often\n")


def test_help_needs_no_app() -> None:
    def load() -> tasks.App:
        raise AssertionError("loaded")

    command = group(load)
    jobs = ("retry", "cancel", "quarantine", "purge", "stats", "tail", "verify")
    queues = ("list", "pause", "resume")
    for path in (["schedules"], ["queues"], *(["jobs", n] for n in jobs), *(["queues", n] for n in queues)):
        assert CliRunner().invoke(command, [*path, "--help"]).exit_code == 0
