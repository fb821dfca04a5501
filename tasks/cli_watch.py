"""The commands that look at all jobs at once, or go on looking: `jobs stats|tail|verify`."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from tasks import queue
from tasks.console import Load, as_json_option, bounded, connection, looking
from tasks.states import Status
from tasks.watch import OVERLAP, last_time, recent_jobs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    import psycopg

    from tasks.job import Job

LOOK_MAX = 1000
SEEN_MAX = 10 * LOOK_MAX
"""Jobs whose last state is remembered, so that it is printed once."""

pause_option = click.option(
    "--every", default=0.5, show_default=True, type=click.FloatRange(0.05, 60), help="Seconds between two looks."
)


def watch_commands(load: Load) -> list[click.Command]:
    """Make the commands."""
    return [_stats(load), _tail(load), _verify(load)]


def _stats(load: Load) -> click.Command:
    @click.command("stats", short_help="Count the jobs of each status, and what waits too long.")
    @as_json_option
    def stats(as_json: bool) -> None:
        """Count the jobs of each status, and what waits that should not.

        `estimated`: there are so many jobs that those which have succeeded are estimated, not counted.
        `due`: could run now. `unknown`: of a task that no live worker knows. `oldest_due_seconds` and
        `oldest_expired_lease_seconds` are ages, empty when there is none.
        """
        from tasks import render

        with looking(load) as conn:
            found = render.as_dict(queue.stats(conn))
        if as_json:
            render.print_json(found)
        else:
            counts = found.pop("counts")
            render.print_facts({**{str(status): counts.get(status, 0) for status in Status}, **found})

    return stats


def _verify(load: Load) -> click.Command:
    @click.command("verify", short_help="Prove from the history that all promises were kept.")
    @as_json_option
    def verify(as_json: bool) -> None:
        """Prove from the history that the queue has kept its promises.

        For each key, some run started after each committed enqueue, or waits to; budgets add up; no job has two
        open attempts. Prints the jobs that contradict it and exits 1; prints nothing is wrong and exits 0.
        """
        from tasks import render
        from tasks.verify import verify as find_violations

        with connection(load) as conn:
            found = find_violations(conn)
        if as_json:
            render.print_json([render.as_dict(violation) for violation in found])
        elif found:
            render.print_table([render.as_dict(violation) for violation in found])
        else:
            click.echo("no violations")
        if found:
            raise click.exceptions.Exit(1)

    return verify


def _tail(load: Load) -> click.Command:
    @click.command("tail", short_help="Follow all jobs, or one to its end.")
    @click.argument("job_id", metavar="[JOB]", type=click.UUID, required=False)
    @pause_option
    @as_json_option
    def tail(job_id: UUID | None, every: float, as_json: bool) -> None:
        """Print a line whenever a job starts, makes progress or ends, until Ctrl-C.

        With JOB: only that one, until its end; exits 0 if it succeeded, 1 otherwise. --json: one document a line.
        """
        with connection(load) as conn:
            try:
                status = _follow(_looks(conn, every, job_id), as_json=as_json)
            except KeyboardInterrupt:
                return
        if status != Status.SUCCEEDED:
            raise click.exceptions.Exit(1)

    return tail


def _looks(conn: psycopg.Connection[Any], every: float, job_id: UUID | None) -> Iterator[Job]:
    """Jobs as they are found, look by look; with `job_id` until its end."""
    since: datetime | None = None
    started: datetime | None = None
    running: list[UUID] = []
    while True:
        with bounded(conn):
            if job_id is not None:
                found = [queue.get_job(conn, job_id)]
            else:
                # Those that ran a moment ago are looked up by name: one that goes back to the queue ends nowhere.
                found, now = recent_jobs(conn, since=since, watched=running, limit=LOOK_MAX)
                started = started or now
                since = max(started, now - OVERLAP)
                running = [job.job_id for job in found if job.status == Status.RUNNING]
        yield from found
        if job_id is not None and found[0].terminal:
            return
        time.sleep(every)


def _follow(jobs: Iterator[Job], *, as_json: bool) -> str | None:
    """Print each job that differs from when it was seen last. Returns the status of the last."""
    from tasks import render

    seen: dict[UUID, tuple[Any, ...]] = {}
    status = None
    for job in jobs:
        status = job.status
        state = (job.status, job.claim_count, job.progress, job.last_error_at)
        if seen.pop(job.job_id, None) != state:
            if as_json:
                render.print_json(_line(job))
            else:
                _print(job)
        seen[job.job_id] = state
        if len(seen) > SEEN_MAX:
            del seen[next(iter(seen))]
    return status


def _line(job: Job) -> dict[str, Any]:
    return {
        # Progress has no time of its own: it is as old as this look.
        "at": datetime.now(UTC) if job.status == Status.RUNNING else last_time(job).astimezone(UTC),
        "job_id": job.job_id,
        "task": job.task,
        "scope": job.scope,
        "status": job.status,
        "attempts": f"{job.attempt_count}/{job.attempts_max}",
        "progress": job.progress,
        "last_error_code": job.last_error_code,
        "cancel_reason": job.cancel_reason,
    }


def _print(job: Job) -> None:
    from tasks import render

    line = _line(job)
    parts = [f"{line['at']:%H:%M:%SZ}", str(job.job_id), job.task, render.styled(job.status), line["attempts"]]
    if job.scope:
        parts.append(f"scope={job.scope}")
    if job.progress is not None and not job.terminal:
        parts.append(render.progress_text(job.progress))
    parts += [text for text in (job.last_error_code, job.cancel_reason) if text and job.status != Status.SUCCEEDED]
    click.echo(" ".join(parts))
