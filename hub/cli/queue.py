"""`packhouse worker`, `sweep`, `jobs`, `queues`, `schedules`: the task system's commands, for the hub's tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tasks.cli import commands

if TYPE_CHECKING:
    from hub.wire.context import Hub
    from tasks import App


def load_app() -> App:
    """Return the register of the hub's tasks, with the services that the environment names."""
    from hub.app import create_app  # Flask and the models: not for `--help`

    return cast("Hub", create_app().extensions["packhouse"]).work.app


worker, sweep, jobs, queues, schedules = commands(load_app)
