from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

import click
import psycopg
import pytest
from click.testing import CliRunner, Result

import tasks
from tasks import queue
from tasks.__main__ import main
from tasks.cli import group
from tasks.testing import drain
from tests.tasks.running import make_app

pytestmark = pytest.mark.integration

Connection = psycopg.Connection[Any]
Run = Callable[..., Result]
SECRET = "s3cret-pass"


@pytest.fixture
def app(database_url: str, committed_db: Connection) -> tasks.App:
    app = make_app(database_url, committed_db)

    @app.task("note")
    def note(text: str = "") -> str:
        return text

    app.task("build", gate=tasks.After("note"))(lambda: None)
    return app


@pytest.fixture
def run(app: tasks.App) -> Run:
    command = group(lambda: app)
    return lambda *arguments: CliRunner().invoke(command, [str(argument) for argument in arguments])


@pytest.fixture
def job_id(app: tasks.App, committed_db: Connection) -> Any:
    job = app["note"].apply_async(("[bold]naïve",), scope="repo-1")
    committed_db.commit()
    return job.id


def test_list_shows_whole_ids_also_without_a_terminal(run: Run, job_id: Any) -> None:
    result = run("jobs", "list")
    assert result.exit_code == 0
    header, row = result.output.splitlines()
    assert header.split() == ["job_id", "task", "scope", "queue", "status", "attempts", "created_at", "last_error_code"]
    assert row.split()[:6] == [str(job_id), "note", "repo-1", "default", "pending", "0/5"]


def test_list_filters_and_limits(run: Run, app: tasks.App, committed_db: Connection, job_id: Any) -> None:
    app["build"].apply_async(scope="repo-2")
    committed_db.commit()

    def listed(*options: str) -> list[str]:
        return [job["task"] for job in json.loads(run("jobs", "list", "--json", *options).output)]

    assert listed() == ["build", "note"]
    assert listed("--limit", "1") == ["build"]
    assert listed("--task", "note") == ["note"]
    assert listed("--scope", "repo-2") == ["build"]
    assert listed("--queue", "slow") == []
    assert listed("--status", "failed") == []


def test_list_of_nothing_says_so(run: Run) -> None:
    assert run("jobs", "list").output == "no jobs\n"
    assert run("jobs", "list", "--json").output == "[]\n"


def test_show_gives_the_job_and_its_attempts(run: Run, app: tasks.App, job_id: Any) -> None:
    drain(app)
    shown = run("jobs", "show", job_id)
    assert shown.exit_code == 0
    assert "succeeded" in shown.output
    assert "[bold]naïve" in shown.output, "what a job holds is not taken for markup"
    assert "SUCCEEDED" in shown.output
    document = json.loads(run("jobs", "show", job_id, "--json").output)
    assert document["job_id"] == str(job_id)
    assert document["status"] == "succeeded"
    assert [attempt["result"] for attempt in document["attempts"]] == ["SUCCEEDED"]
    assert datetime.fromisoformat(document["finished_at"]).tzinfo is not None


def test_why_names_the_job_that_shuts_the_gate(run: Run, app: tasks.App, committed_db: Connection, job_id: Any) -> None:
    gated = app["build"].apply_async(scope="repo-1")
    committed_db.commit()
    said = run("jobs", "why", gated.id)
    assert said.exit_code == 0
    assert said.output.startswith("build is pending\n- ")
    assert str(job_id) in said.output
    document = json.loads(run("jobs", "why", gated.id, "--json").output)
    assert (document["task"], document["status"]) == ("build", "pending")
    assert any(str(job_id) in reason["sentence"] for reason in document["reasons"])


def test_why_says_when_nothing_holds_a_job(run: Run, app: tasks.App, job_id: Any) -> None:
    with tasks.Worker(app) as worker:
        worker.register()
        assert (
            run("jobs", "why", job_id).output == "note is pending\n- nothing holds it: the next free worker takes it\n"
        )


def test_why_counts_the_jobs_before_a_waiting_one(run: Run, app: tasks.App, committed_db: Connection) -> None:
    first, second = app["note"].delay(), app["note"].delay()
    committed_db.commit()
    assert "come before it:" not in run("jobs", "why", first.id).output
    assert "- due jobs of its queue that come before it: 1\n" in run("jobs", "why", second.id).output
    assert json.loads(run("jobs", "why", second.id, "--json").output)["ahead"] == 1


@pytest.mark.parametrize("command", ["show", "why"])
def test_unknown_job_is_exit_code_1(run: Run, command: str) -> None:
    unknown = uuid4()
    result = run("jobs", command, unknown)
    assert (result.exit_code, result.output) == (1, f"Error: there is no job {unknown}\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("jobs", "show", "no-uuid"),
        ("jobs", "list", "--status", "lost"),
        ("jobs", "list", "--limit", "0"),
        ("sweep", "--once", "--every", "5"),
        ("worker", "--concurrency", "0"),
        ("worker", "--queue", "a b"),
        ("nonsense",),
    ],
)
def test_wrong_usage_is_exit_code_2(run: Run, arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


def test_sweep_prints_what_it_took_back(run: Run, app: tasks.App, committed_db: Connection, job_id: Any) -> None:
    past = datetime.now(UTC) + timedelta(seconds=600)
    committed_db.execute("UPDATE tasks.job SET available_at = now() - interval '1 hour'")
    queue.claim_jobs(
        committed_db, worker="dead", tasks=["note"], queues=["default"], limit=1, now=past - timedelta(seconds=1200)
    )
    committed_db.commit()
    assert json.loads(run("sweep", "--json").output)["requeued"] == 1
    assert run("sweep", "--once").output.split()[:4] == ["requeued=0", "failed=0", "superseded=0", "skipped=0"]


def test_unreachable_database_is_exit_code_1_without_the_password() -> None:
    app = tasks.App("under.test")
    app.configure(database_url=f"postgresql://somebody:{SECRET}@127.0.0.1:1/none")
    for arguments in (["jobs", "list"], ["sweep"], ["jobs", "why", str(uuid4())]):
        result = CliRunner().invoke(group(lambda: app), arguments)
        assert result.exit_code == 1
        assert result.output.startswith("Error: the database at 127.0.0.1:1/none does not answer: ")
        assert SECRET not in result.output


def test_database_that_lacks_a_migration_is_exit_code_1(new_database: Callable[[], str]) -> None:
    app = make_app(new_database())
    for told in ("has no job tables: run", "has job tables of another version (column"):
        result = CliRunner().invoke(group(lambda: app), ["jobs", "list"])
        assert result.exit_code == 1
        assert told in result.output
        assert ": run the migrations, `alembic -c setup.cfg upgrade tasks@head`" in result.output
        with psycopg.connect(app.database_url) as conn:
            conn.execute("CREATE SCHEMA IF NOT EXISTS tasks")
            conn.execute("CREATE TABLE IF NOT EXISTS tasks.job (job_id uuid)")


def test_app_without_a_database_is_exit_code_2() -> None:
    for arguments in (["jobs", "list"], ["worker"], ["sweep"]):
        result = CliRunner().invoke(group(lambda: tasks.App("under.test")), arguments)
        assert result.exit_code == 2
        assert "configure(database_url=" in result.output


def test_help_needs_no_app() -> None:
    def load() -> tasks.App:
        raise AssertionError("loaded")

    command = group(load)
    for path in ([], ["worker"], ["sweep"], ["jobs"], ["jobs", "list"], ["jobs", "show"], ["jobs", "why"]):
        assert CliRunner().invoke(command, [*path, "--help"]).exit_code == 0


def test_group_can_be_mounted_in_another(app: tasks.App) -> None:
    outer = click.Group("outer", commands=[group(lambda: app, "queue")])
    assert CliRunner().invoke(outer, ["queue", "jobs", "list"]).output == "no jobs\n"


def test_module_command_finds_the_app_by_its_path(app: tasks.App, job_id: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("an_application")
    module.app = app  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "an_application", module)
    result = CliRunner().invoke(main, ["--app", "an_application:app", "jobs", "show", str(job_id), "--json"])
    assert json.loads(result.output)["job_id"] == str(job_id)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("no_such_module:app", "no module 'no_such_module'"),
        ("tasks", "module:attribute"),
        ("tasks:nothing", "is no tasks.App"),
        ("tasks:App", "is no tasks.App"),
    ],
)
def test_module_command_says_what_is_wrong_with_the_path(path: str, said: str) -> None:
    result = CliRunner().invoke(main, ["--app", path, "jobs", "list"])
    assert result.exit_code == 2
    assert said in result.output.replace("\n", " ")


def test_commands_in_the_operators_guide_are_real(app: tasks.App) -> None:
    guide = (Path(__file__).parents[2] / "docs/how-to/operate-the-queue.md").read_text(encoding="utf-8")
    calls = re.findall(
        r"(?:^\$ |`)packhouse ((?:worker|sweep|jobs|queues|schedules)[^`\n|<]*)", guide, flags=re.MULTILINE
    )
    assert len(calls) >= 20
    for call in calls:
        words = shlex.split(call.replace("JOB", str(uuid4())))
        command: click.Command = group(lambda: app)
        while isinstance(command, click.Group):
            found = command.get_command(click.Context(command), words.pop(0))
            assert found is not None, call
            command = found
        command.make_context("packhouse", words)
