"""What the command line prints: JSON for programs, tables for people. Same names as the columns in both."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tasks.job import Attempt, Job

COLOURS = {
    "pending": "cyan", "running": "yellow", "succeeded": "green", "failed": "red", "cancelled": "magenta",
    "quarantined": "red",
}  # fmt: skip
STYLES = {**COLOURS, "quarantined": "bold red"}
LIST_COLUMNS = ("job_id", "task", "scope", "queue", "status", "attempts", "created_at", "last_error_code")
ATTEMPT_COLUMNS = ("number", "result", "claimed_at", "ended_at", "worker", "error_code", "error")


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"no JSON for {type(value).__name__}")


def print_json(value: object) -> None:
    """Print one JSON document; instants are ISO 8601, ids are strings."""
    click.echo(json.dumps(value, default=_plain, ensure_ascii=False))


def as_dict(row: Any) -> dict[str, Any]:
    """Return the row of a dataclass as a dict of its columns."""
    return asdict(row)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    return str(value)


def _console() -> Console:
    # Without a terminal there is no width to fit into: cut nothing, so that grep finds whole ids.
    console = Console(soft_wrap=False)
    return console if console.is_terminal else Console(width=1000, soft_wrap=True)


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows with the same names as a table; statuses in their colours."""
    table = Table(box=None, pad_edge=False)
    for name in rows[0]:
        table.add_column(name, no_wrap=name.endswith(("_id", "_at")))
    for row in rows:
        table.add_row(*(Text(_cell(value), style=STYLES.get(str(value), "")) for value in row.values()))
    _console().print(table)


def print_facts(facts: Mapping[str, Any]) -> None:
    """Print names and values, a line each."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in facts.items():
        table.add_row(Text(name, style=STYLES.get(name, "bold")), Text(_cell(value)))
    _console().print(table)


def styled(status: str) -> str:
    """A status in its colour, for click.echo, which drops the colour where there is no terminal."""
    return click.style(status, fg=COLOURS[status], bold=status == "quarantined")


def progress_text(progress: Any) -> str:
    """What a task says of itself, in a few words."""
    if isinstance(progress, dict) and set(progress) == {"done", "total", "text"}:
        done = str(progress["done"]) if progress["total"] is None else f"{progress['done']}/{progress['total']}"
        return f"{done} {progress['text']}".rstrip()
    return json.dumps(progress, ensure_ascii=False)


def print_jobs(jobs: Sequence[Job]) -> None:
    """Print a table of jobs."""
    table = Table(box=None, pad_edge=False)
    for name in LIST_COLUMNS:
        table.add_column(name, no_wrap=name in {"job_id", "status", "created_at"})
    for job in jobs:
        cells = {**as_dict(job), "attempts": f"{job.attempt_count}/{job.attempts_max}"}
        table.add_row(
            *(Text(_cell(cells[name]), style=STYLES[job.status] if name == "status" else "") for name in LIST_COLUMNS)
        )
    _console().print(table)


def print_job(job: Job, attempts: Sequence[Attempt]) -> None:
    """Print what is known of one job, then its attempts."""
    facts = Table(box=None, pad_edge=False, show_header=False)
    for name, value in as_dict(job).items():
        if value is not None and value not in ("", [], {}):
            shown = json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else _cell(value)
            facts.add_row(Text(name, style="bold"), Text(shown, style=STYLES[job.status] if name == "status" else ""))
    console = _console()
    console.print(facts)
    if attempts:
        history = Table(*ATTEMPT_COLUMNS, box=None, pad_edge=False)
        for attempt in attempts:
            row = {**as_dict(attempt), "result": attempt.result or "(open)"}
            history.add_row(*(Text(_cell(row[name])) for name in ATTEMPT_COLUMNS))
        console.print()
        console.print(history)
