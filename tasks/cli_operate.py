"""The commands by which a person moves jobs: `jobs retry|cancel|quarantine|purge`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from tasks import operate, queue
from tasks.console import Load, as_json_option, bounded, connection
from tasks.errors import DuplicateJob, JobActive, JobNotFound, JobTerminal, PayloadError
from tasks.states import TERMINAL

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

REFUSED = (JobNotFound, JobTerminal, JobActive, DuplicateJob)
PAGE = 1000
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Age(click.ParamType[float]):
    """A length of time: `90s`, `30m`, `12h`, `7d`; in seconds."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it."""
        match = re.fullmatch(r"([0-9]{1,6})([smhd])", str(value))
        if match is None:
            self.fail(f"{value!r}: write a number with s, m, h or d, e.g. 7d", param, ctx)
        return float(int(match[1]) * _UNITS[match[2]])


def operate_commands(load: Load) -> list[click.Command]:
    """Make the commands."""
    return [
        _move(
            load,
            "retry",
            operate.retry_job,
            "Put failed, cancelled or quarantined jobs back into the queue, due at once.",
            "Their budgets grow by one attempt, spent or not; the history stays.",
        ),
        _move(
            load,
            "cancel",
            operate.cancel_job,
            "Cancel waiting or running jobs.",
            "The claim of a running attempt is void at once: the task sees it at its next heartbeat, and can write "
            "nothing more.",
        ),
        _move(
            load,
            "quarantine",
            operate.set_aside_job,
            "Set waiting or running jobs aside for a person.",
            "Nobody claims them any more, all that is known of them is kept, `retry` brings them back.",
        ),
        _purge(load),
    ]


def _move(load: Load, name: str, move: Callable[..., None], summary: str, more: str) -> click.Command:
    @click.command(
        name,
        help=f"{summary}\n\n{more} Each job is a transaction of its own; exits 1 when one of them was refused.",
        short_help=summary,
    )
    @click.argument("job_ids", metavar="JOB…", type=click.UUID, nargs=-1, required=True)
    @click.option("--reason", required=True, metavar="TEXT", help="Why; kept with the job.")
    @as_json_option
    def command(job_ids: tuple[UUID, ...], reason: str, as_json: bool) -> None:
        from tasks import render

        done: list[dict[str, Any]] = []
        with connection(load) as conn:
            for job_id in job_ids:
                try:
                    with bounded(conn):
                        move(conn, job_id, reason=reason)
                        status = queue.get_job(conn, job_id).status
                    done.append({"job_id": job_id, "status": status, "error": None})
                except REFUSED as refusal:
                    done.append({"job_id": job_id, "status": None, "error": str(refusal)})
                except PayloadError as error:
                    raise click.UsageError(str(error)) from None
        if as_json:
            render.print_json(done)
        else:
            for row in done:
                click.echo(
                    f"Error: {row['error']}" if row["error"] else f"{row['job_id']} {row['status']}",
                    err=bool(row["error"]),
                )
        if any(row["error"] for row in done):
            raise click.exceptions.Exit(1)

    return command


def _purge(load: Load) -> click.Command:
    kept = ", ".join(f"{status}={seconds / 86400:g}d" for status, seconds in operate.KEEP_SECONDS.items())

    @click.command("purge")
    @click.option(
        "--keep",
        multiple=True,
        type=(click.Choice(sorted(str(status) for status in TERMINAL)), Age()),
        metavar="STATUS AGE",
        help=f"How long jobs of a status are kept after their end; repeatable. [the app's own, else {kept}]",
    )
    @click.option("--forget-once", is_flag=True, help="Also jobs of mode `once`; their keys come free.")
    @as_json_option
    def purge(keep: tuple[tuple[str, float], ...], forget_once: bool, as_json: bool) -> None:
        """Delete jobs that ended long ago, with their attempts.

        In bites of 1,000, each a transaction. Workers do it by themselves with the app's own ages.
        """
        from tasks import render

        app = load()
        ages = dict(keep) or app.keep
        purged, bite = 0, PAGE
        with connection(lambda: app) as conn:
            while bite == PAGE:
                with bounded(conn):
                    bite = operate.prune_jobs(conn, keep=ages, limit=PAGE, forget_once=forget_once)
                purged += bite
        if as_json:
            render.print_json({"purged": purged})
        else:
            click.echo(f"purged={purged}")

    return purge
