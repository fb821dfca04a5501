"""The commands `worker`, `sweep`, `jobs …`, `queues …` and `schedules`, for any click group to mount.

Exit codes: 0 done; 1 no such job, refused, offenders found, or the database is away or lacks a migration; 2 wrong
usage or settings; 70 worker processes died too fast and were given up; 75 a worker is spent, start another.
"""

from __future__ import annotations

import logging

import click

from tasks.cli_jobs import jobs_group
from tasks.cli_queues import queues_group
from tasks.cli_schedules import schedules_command
from tasks.cli_worker import worker_command
from tasks.console import Load, as_json_option, connection, log_level_option, seconds, start_log

log = logging.getLogger(__name__)


def commands(load: Load) -> list[click.Command]:
    """Make the commands. `load` returns the app; it is called by the command that runs, not before."""
    return [worker_command(load), _sweep(load), jobs_group(load), queues_group(load), schedules_command(load)]


def group(load: Load, name: str = "tasks") -> click.Group:
    """Make one group with all the commands in it."""
    return click.Group(name, commands=commands(load), help="Run and look at jobs.")


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
