"""The commands `worker`, `sweep`, `jobs …`, `queues …` and `schedules`, for any click group to mount.

Exit codes: 0 done; 1 no such job, refused, offenders found, or the database is away or has no job tables; 2 wrong
usage or settings.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import NoReturn

import click

from tasks.cli_jobs import jobs_group
from tasks.cli_queues import queues_group
from tasks.cli_schedules import schedules_command
from tasks.console import Load, as_json_option, connection, log_level_option, start_log
from tasks.errors import NotConfigured
from tasks.options import CONCURRENCY_MAX, GRACE_SECONDS

log = logging.getLogger(__name__)

seconds = click.FloatRange(min=0.1, max=24 * 3600.0)


def commands(load: Load) -> list[click.Command]:
    """Make the commands. `load` returns the app; it is called by the command that runs, not before."""
    return [_worker(load), _sweep(load), jobs_group(load), queues_group(load), schedules_command(load)]


def group(load: Load, name: str = "tasks") -> click.Group:
    """Make one group with all the commands in it."""
    return click.Group(name, commands=commands(load), help="Run and look at jobs.")


def _worker(load: Load) -> click.Command:
    @click.command("worker")
    @click.option(
        "-Q",
        "--queue",
        "queues",
        multiple=True,
        metavar="NAME",
        help="Queue to work on; repeatable. [all that tasks name]",
    )
    @click.option(
        "-c",
        "--concurrency",
        default=2,
        show_default=True,
        type=click.IntRange(1, CONCURRENCY_MAX),
        help="Jobs at a time.",
    )
    @click.option(
        "--grace",
        default=GRACE_SECONDS,
        show_default=True,
        type=click.FloatRange(0, 24 * 3600),
        help="Seconds that running tasks have to end after SIGTERM.",
    )
    @click.option(
        "--poll",
        default=2.0,
        show_default=True,
        type=seconds,
        help="Longest pause in seconds between two looks for jobs.",
    )
    @click.option("--sweep", default=15.0, show_default=True, type=seconds, help="Seconds between two sweeps.")
    @click.option("--worker-id", metavar="NAME", help="Name in the list of workers. [host:pid:random]")
    @click.option(
        "--listen/--no-listen",
        default=True,
        help="Whether to LISTEN for new jobs; not through a pooler in transaction mode.",
    )
    @log_level_option
    @as_json_option
    def worker(  # noqa: PLR0913, PLR0917  # one per option of the command line
        queues: tuple[str, ...],
        concurrency: int,
        grace: float,
        poll: float,
        sweep: float,
        worker_id: str | None,
        listen: bool,
        log_level: str,
        as_json: bool,
    ) -> None:
        """Run jobs until SIGTERM or SIGINT.

        The first signal ends the claiming and gives running tasks --grace seconds, then hands the rest back; the second
        hands them back at once. One line of the log per attempt; --json: as JSON lines. Exits 0 after a signal.
        """
        from tasks import timers
        from tasks.worker import Worker

        app = load()
        try:
            made = Worker(app, queues=queues or app.queues(), concurrency=concurrency, grace=grace, worker_id=worker_id)
        except (NotConfigured, ValueError) as error:
            raise click.UsageError(str(error)) from None
        start_log(log_level, json_lines=as_json)
        if timers.run(made, poll=poll, sweep=sweep, listen=listen):
            _leave()

    return worker


def _leave() -> NoReturn:
    """End the process without waiting for its threads.

    A thread cannot be ended from outside. The jobs of those left are released and their writes are refused.
    """
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)


def _sweep(load: Load) -> click.Command:
    @click.command("sweep")
    @click.option("--once", is_flag=True, help="Sweep once, which is the default.")
    @click.option("--every", type=seconds, metavar="SECONDS", help="Go on sweeping until SIGTERM.")
    @log_level_option
    @as_json_option
    def sweep(once: bool, every: float | None, log_level: str, as_json: bool) -> None:
        """Take back the jobs whose worker is gone: every claim whose lease is over.

        Works page by page until one is not full and prints how many jobs were queued again, failed with their
        budget spent, or were superseded.
        """
        from tasks import render
        from tasks.sweep import sweep as sweep_all

        def sweep_once() -> None:
            with connection(load) as conn:
                counts = render.as_dict(sweep_all(conn))
            if as_json:
                render.print_json(counts)
            else:
                click.echo(" ".join(f"{name}={count}" for name, count in counts.items()))

        if every is None:
            sweep_once()
            return
        if once:
            raise click.UsageError("give --once or --every, not both")
        from tasks import timers

        start_log(log_level, json_lines=as_json)

        def sweep_again() -> None:
            try:
                sweep_once()
            except click.ClickException as error:
                log.warning("%s; the next sweep tries again", error.message)

        timers.every(every, sweep_again, "sweep")

    return sweep
