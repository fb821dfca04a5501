"""The group `jobs`, and its commands `list|show|why`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tasks import queue
from tasks.cli_operate import operate_commands
from tasks.cli_watch import watch_commands
from tasks.console import Load, as_json_option, looking
from tasks.states import Status

if TYPE_CHECKING:
    from uuid import UUID

LIST_MAX = 1000
job_argument = click.argument("job_id", metavar="JOB", type=click.UUID)


def jobs_group(load: Load) -> click.Group:
    """Make the group `jobs`."""
    looking = [_list(load), _show(load), _why(load)]
    return click.Group(
        "jobs",
        commands=[*looking, *operate_commands(load), *watch_commands(load)],
        help="Look at jobs, move them, prove their history.",
    )


def _list(load: Load) -> click.Command:
    @click.command("list")
    @click.option("--status", type=click.Choice([str(status) for status in Status]))
    @click.option("--task", metavar="NAME")
    @click.option("--scope", metavar="TEXT")
    @click.option("--queue", "queue_name", metavar="NAME")
    @click.option("--limit", default=50, show_default=True, type=click.IntRange(1, LIST_MAX))
    @as_json_option
    def list_(
        status: str | None,
        task: str | None,
        scope: str | None,
        queue_name: str | None,
        limit: int,
        as_json: bool,
    ) -> None:
        """List jobs, the newest first."""
        from tasks import render

        with looking(load) as conn:
            found = queue.list_jobs(conn, status=status, task=task, scope=scope, queue=queue_name, limit=limit)
        if as_json:
            render.print_json([render.as_dict(job) for job in found])
        elif found:
            render.print_jobs(found)
        else:
            click.echo("no jobs")

    return list_


def _show(load: Load) -> click.Command:
    @click.command("show")
    @job_argument
    @as_json_option
    def show(job_id: UUID, as_json: bool) -> None:
        """Show one job and all its attempts."""
        from tasks import render

        with looking(load) as conn:
            job, attempts = queue.get_job(conn, job_id), queue.attempts_of(conn, job_id)
        if as_json:
            render.print_json({**render.as_dict(job), "attempts": [render.as_dict(attempt) for attempt in attempts]})
        else:
            render.print_job(job, attempts)

    return show


def _why(load: Load) -> click.Command:
    @click.command("why", short_help="Say why a job does not run.")
    @job_argument
    @as_json_option
    def why(job_id: UUID, as_json: bool) -> None:
        """Say why a job does not run: what it waits for, who runs it, or what ended it.

        `ahead`: due jobs of its queue that are claimed before it, counted up to 10,000.
        """
        from tasks import render
        from tasks.why import jobs_ahead
        from tasks.why import why as explain

        with looking(load) as conn:
            job, reasons, ahead = queue.get_job(conn, job_id), explain(conn, job_id), jobs_ahead(conn, job_id)
        if as_json:
            status = {"job_id": job_id, "task": job.task, "status": job.status, "ahead": ahead}
            render.print_json({**status, "reasons": [render.as_dict(reason) for reason in reasons]})
            return
        click.echo(f"{job.task} is {job.status}")
        for reason in reasons:
            click.echo(f"- {reason.sentence}")
        if not reasons and job.status == Status.PENDING:
            click.echo("- nothing holds it: the next free worker takes it")
        if ahead:
            click.echo(f"- due jobs of its queue that come before it: {ahead}")

    return why
