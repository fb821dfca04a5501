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
_WIDTH_MAX = 1000
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
    return console if console.is_terminal else Console(width=_WIDTH_MAX, soft_wrap=True)


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows with the same names as a table; statuses in their colours.

    On a terminal too narrow for the columns side by side they come one below the other, a block for each row: no id,
    no instant and no word that would fit a line is ever cut or broken.
    """
    table = Table(box=None, pad_edge=False)
    for name in rows[0]:
        whole = any(isinstance(row[name], (datetime, UUID)) for row in rows)
        # Of what is not wrapped Rich takes the longest word for the least width: an instant has a space in it.
        least = max(len(_cell(row[name])) for row in rows) if whole else None
        table.add_column(name, no_wrap=whole or name == "status", min_width=least, overflow="fold")
    for row in rows:
        table.add_row(*map(_text, row.values()))
    console = _console()
    if console.measure(table, options=console.options.update_width(_WIDTH_MAX)).minimum <= console.width:
        console.print(table)
        return
    for number, row in enumerate(rows):
        if number:
            console.print()
        _print_facts(console, {name: value for name, value in row.items() if value not in (None, "")})


def print_facts(facts: Mapping[str, Any]) -> None:
    """Print names and values, a line each."""
    _print_facts(_console(), facts)


def _print_facts(console: Console, facts: Mapping[str, Any]) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(Text(name, style=STYLES.get(name, "bold")), _text(value))
    console.print(table)


def _text(value: object) -> Text:
    return Text(_cell(value), style=STYLES.get(str(value), ""))


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
    rows = [{**as_dict(job), "attempts": f"{job.attempt_count}/{job.attempts_max}"} for job in jobs]
    print_table([{name: row[name] for name in LIST_COLUMNS} for row in rows])


def print_job(job: Job, attempts: Sequence[Attempt]) -> None:
    """Print what is known of one job, then its attempts."""
    known = {name: value for name, value in as_dict(job).items() if value is not None and value not in ("", [], {})}
    print_facts(
        {
            name: json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
            for name, value in known.items()
        }
    )
    if attempts:
        rows = [{**as_dict(attempt), "result": attempt.result or "(open)"} for attempt in attempts]
        click.echo()
        print_table([{name: row[name] for name in ATTEMPT_COLUMNS} for row in rows])
