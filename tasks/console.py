"""What the commands share: the connection, the log, and errors as one sentence with an exit code."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import psycopg
from psycopg.conninfo import conninfo_to_dict

from tasks.app import App
from tasks.errors import JobNotFound, NotConfigured
from tasks.pool import DATABASE_AWAY, NOT_MIGRATED, connect_options, what_is_missing

if TYPE_CHECKING:
    from collections.abc import Iterator

Load = Callable[[], App]
"""Returns the app; called by the command that runs, not before."""

STATEMENT_SECONDS_MAX = 30.0
seconds = click.FloatRange(min=0.1, max=24 * 3600.0)
as_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
log_level_option = click.option(
    "--log-level", default="info", show_default=True, type=click.Choice(["debug", "info", "warning", "error"])
)


@contextmanager
def friendly(app: App) -> Iterator[None]:
    """Turn what an operator can do something about into one sentence and an exit code."""
    try:
        yield
    except JobNotFound as error:
        raise click.ClickException(str(error)) from None
    except DATABASE_AWAY as error:
        reason = str(error).strip().splitlines()
        raise click.ClickException(
            f"the database at {_place(app)} does not answer: {reason[0] if reason else type(error).__name__}"
        ) from None
    except NOT_MIGRATED as error:
        raise click.ClickException(f"the database at {_place(app)} {what_is_missing(error)}") from None


def _place(app: App) -> str:
    """Where the database is, without user or password."""
    parts = conninfo_to_dict(app.database_url)
    return f"{parts.get('host', 'localhost')}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"


@contextmanager
def connection(load: Load) -> Iterator[psycopg.Connection[Any]]:
    """A connection to the app's database, with nothing set on it (see `bounded`); errors become click's: `friendly`."""
    app = load()
    try:
        database_url = app.database_url
    except NotConfigured as error:
        raise click.UsageError(str(error)) from None
    with friendly(app), psycopg.connect(database_url, **connect_options()) as conn:
        yield conn


@contextmanager
def bounded(conn: psycopg.Connection[Any]) -> Iterator[None]:
    """A transaction of its own, whose statements the server ends after STATEMENT_SECONDS_MAX.

    What a person looks at must not hold back the vacuum for hours. Set for the transaction only: behind a pooler the
    connection is the next client's.
    """
    with conn.transaction():
        conn.execute("SELECT set_config('statement_timeout', %s, true)", (f"{STATEMENT_SECONDS_MAX * 1000:.0f}",))
        yield


@contextmanager
def looking(load: Load) -> Iterator[psycopg.Connection[Any]]:
    """A connection for one transaction, bounded."""
    with connection(load) as conn, bounded(conn):
        yield conn


def _json_value(value: object) -> object:
    if isinstance(value, float):
        return round(value, 3)
    return value if isinstance(value, int) else str(value)


class _Lines(logging.Formatter):
    """Text lines; the time of day is written out once a second, not for each of the thousands of lines in it."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")
        self._shown = (0, "")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802  # logging's name
        second, text = self._shown
        if second != int(record.created):
            text = time.strftime(datefmt or self.default_time_format, self.converter(record.created))
            self._shown = (int(record.created), text)
        return f"{text},{int(record.msecs):03d}"


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if isinstance(record.args, Mapping):
            line.update({name: _json_value(value) for name, value in record.args.items()})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def start_log(level: str, *, json_lines: bool) -> None:
    """Log to standard error, as text or as JSON lines."""
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonLines() if json_lines else _Lines())
    # No line shows them; looking them up takes a tenth of it.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.basicConfig(level=level.upper(), handlers=[handler])
    # The pool reports each discarded connection; what it means for a job is said by the worker itself.
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)
