"""`packhouse serve`: the web process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from gunicorn.app.base import BaseApplication

from hub.settings import environment, from_env

if TYPE_CHECKING:
    from flask import Flask

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  # private heartbeat files, made by gunicorn


class Server(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn with our options in place of its own command line."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        super().__init__()

    def load_config(self) -> None:
        """Take the options."""
        for name, value in self.options.items():
            self.cfg.set(name, value)

    def load(self) -> Flask:
        """Make the application, in each worker: a connection pool must not be forked."""
        from hub.app import create_app

        return create_app()


@click.command()
@click.option("--bind", default="127.0.0.1:8000", show_default=True, help="Address and port to listen on.")
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True, help="Processes.")
@click.option("--threads", type=click.IntRange(1), default=8, show_default=True, help="Threads a process.")
def serve(bind: str, workers: int, threads: int) -> None:
    """Serve the hub over HTTP with gunicorn.

    The settings come from the environment; see the README.
    """
    from_env(environment())  # a wrong setting is one sentence here, and a traceback in every worker there
    import hub.app  # noqa: F401  # imported once, before the workers are forked; each makes its own application

    options: dict[str, Any] = {
        "bind": bind,
        "control_socket_disable": True,
        "graceful_timeout": 10,
        "threads": threads,
        "worker_class": "gthread",
        "workers": workers,
    }
    if SHARED_MEMORY.is_dir():
        options["worker_tmp_dir"] = str(SHARED_MEMORY)  # heartbeats must not wait for a busy disk
    Server(options).run()
