"""`packhouse serve`: the web process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from hub.settings import environment, from_env

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  # private heartbeat files, made by gunicorn


@click.command()
@click.option("--bind", default="127.0.0.1:8000", show_default=True, help="Address and port to listen on.")
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True, help="Processes.")
@click.option("--threads", type=click.IntRange(1), default=8, show_default=True, help="Threads a process.")
def serve(bind: str, workers: int, threads: int) -> None:
    """Serve the hub over HTTP with gunicorn, in this process's place.

    The settings come from the environment; see the README.
    """
    from_env(environment())  # a wrong setting is one sentence here, and a traceback in every worker there
    command = [
        *(sys.executable, "-m", "gunicorn", "hub.app:create_app()", "--bind", bind),
        *("--worker-class", "gthread", "--workers", str(workers), "--threads", str(threads)),
        *("--graceful-timeout", "10", "--no-control-socket"),
    ]
    if SHARED_MEMORY.is_dir():
        command += ["--worker-tmp-dir", str(SHARED_MEMORY)]  # heartbeats must not wait for a busy disk
    os.execv(sys.executable, command)  # noqa: S606  # no shell is wanted
