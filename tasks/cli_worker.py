"""The command `worker`: one process, or several under a parent."""

from __future__ import annotations

import gc
import logging
import os
import sys
from typing import Any, NoReturn

import click

from tasks.console import Load, as_json_option, log_level_option, seconds, start_log
from tasks.errors import NotConfigured
from tasks.options import CONCURRENCY_MAX, GRACE_SECONDS, POLL_SECONDS, PROCESSES_MAX, SWEEP_SECONDS

OPTIONS = (
    click.option(
        *("-Q", "--queue", "queues"),
        multiple=True,
        metavar="NAME",
        help="Queue to work on; repeatable. [all that tasks name]",
    ),
    click.option(
        *("-c", "--concurrency"),
        default=2,
        show_default=True,
        type=click.IntRange(1, CONCURRENCY_MAX),
        help="Jobs at a time.",
    ),
    click.option(
        *("-p", "--processes"),
        default=1,
        show_default=True,
        type=click.IntRange(1, PROCESSES_MAX),
        help="Worker processes under one parent, each with --concurrency threads.",
    ),
    click.option(
        "--grace",
        default=GRACE_SECONDS,
        show_default=True,
        type=click.FloatRange(0, 24 * 3600),
        help="Seconds that running tasks have to end after SIGTERM.",
    ),
    click.option(
        "--poll",
        default=POLL_SECONDS,
        show_default=True,
        type=seconds,
        help="Longest pause in seconds between two looks for jobs.",
    ),
    click.option("--sweep", default=SWEEP_SECONDS, show_default=True, type=seconds, help="Seconds between two sweeps."),
    click.option("--worker-id", metavar="NAME", help="Name in the list of workers. [host:pid:random]"),
    click.option(
        "--listen/--no-listen",
        default=True,
        help="Whether to LISTEN for new jobs; --no-listen behind a pooler in transaction mode.",
    ),
    click.option("--lifeline", type=int, hidden=True),
    click.option("--child", type=int, hidden=True),
    log_level_option,
    as_json_option,
)


def worker_command(load: Load) -> click.Command:
    """Make the command. `load` returns the app; a parent of several processes does not call it."""

    def worker(*, processes: int, lifeline: int | None, log_level: str, as_json: bool, **options: Any) -> None:
        """Run jobs until SIGTERM or SIGINT.

        The first signal ends the claiming and gives running tasks --grace seconds, then hands the rest back; the second
        hands them back at once. One line of the log per attempt; --json: as JSON lines. Exits 0 after a signal, 75
        when a thread runs on after its task's time_limit: start another worker then, as --processes does.
        """
        if processes == 1 or lifeline is not None:
            _work(load, lifeline, log_level, as_json, **options)
            return
        from tasks.processes import Parent, own_command

        start_log(log_level, json_lines=as_json)
        sys.exit(Parent(own_command(), processes).run())

    for option in reversed(OPTIONS):
        worker = option(worker)
    return click.command("worker")(worker)


def _work(  # noqa: PLR0913  # one per option of the command line
    load: Load,
    lifeline: int | None,
    log_level: str,
    as_json: bool,
    *,
    queues: tuple[str, ...],
    worker_id: str | None,
    child: int | None,
    listen: bool,
    poll: float,
    sweep: float,
    **options: Any,
) -> None:
    """Be a worker, until a signal or the parent's end. `options` are the worker's own."""
    from tasks import timers
    from tasks.processes import EXIT_SPENT, follow
    from tasks.worker import Worker

    if worker_id is not None and child is not None:
        worker_id = f"{worker_id}.{child}"
    app = load()
    try:
        made = Worker(app, queues=queues or app.queues(), worker_id=worker_id, pooled=not listen, **options)
    except (NotConfigured, ValueError) as error:
        raise click.UsageError(str(error)) from None
    start_log(log_level, json_lines=as_json)
    if lifeline is not None:
        follow(lifeline)
    # What has been imported stays for good: the garbage collector need not look through it.
    gc.collect()
    gc.freeze()
    left = timers.run(made, poll=poll, sweep=sweep, listen=listen)
    if left or made.spent:
        _leave(EXIT_SPENT if made.spent else 0)


def _leave(code: int) -> NoReturn:
    """End the process without waiting for its threads.

    A thread cannot be ended from outside. The jobs of those left are released and their writes are refused.
    """
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)
