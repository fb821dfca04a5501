"""The commands `queues list|pause|resume`."""

from __future__ import annotations

import click

from tasks import operate
from tasks.console import Load, as_json_option, looking
from tasks.errors import PayloadError

queue_argument = click.argument("queue", metavar="QUEUE")


def queues_group(load: Load) -> click.Group:
    """Make the group `queues`."""
    return click.Group(
        "queues", commands=[_list(load), _pause(load), _resume(load)], help="List, pause and resume queues."
    )


def _list(load: Load) -> click.Command:
    @click.command("list")
    @as_json_option
    def list_(as_json: bool) -> None:
        """List the queues that have unfinished jobs, are paused, or are named by a task."""
        from tasks import render

        app = load()
        with looking(lambda: app) as conn:
            rows = {row.queue: render.as_dict(row) for row in operate.list_queues(conn)}
        for name in app.queues():
            empty = {"paused_at": None, "reason": None, "pending": 0, "due": 0, "running": 0}
            rows.setdefault(name, {"queue": name, **empty})
        listed = [rows[name] for name in sorted(rows)]
        if as_json:
            render.print_json(listed)
        else:
            render.print_table(listed)

    return list_


def _pause(load: Load) -> click.Command:
    @click.command("pause")
    @queue_argument
    @click.option("--reason", default="", metavar="TEXT", help="Why; shown by `queues list` and `jobs why`.")
    @as_json_option
    def pause(queue: str, reason: str, as_json: bool) -> None:
        """Stop claims from QUEUE. What runs goes on, what is enqueued waits."""
        from tasks import render

        with looking(load) as conn:
            try:
                operate.pause_queue(conn, queue, reason=reason)
            except PayloadError as error:
                raise click.UsageError(str(error)) from None
        if as_json:
            render.print_json({"queue": queue, "paused": True})
        else:
            click.echo(f"queue {queue} is paused")

    return pause


def _resume(load: Load) -> click.Command:
    @click.command("resume")
    @queue_argument
    @as_json_option
    def resume(queue: str, as_json: bool) -> None:
        """Let workers claim from QUEUE again. `was_paused` says whether that changed anything."""
        from tasks import render

        with looking(load) as conn:
            try:
                was_paused = operate.resume_queue(conn, queue)
            except PayloadError as error:
                raise click.UsageError(str(error)) from None
        if as_json:
            render.print_json({"queue": queue, "paused": False, "was_paused": was_paused})
        else:
            click.echo(f"queue {queue} is open" if was_paused else f"queue {queue} was not paused")

    return resume
