"""`packhouse serve`: the web process."""

from __future__ import annotations

import gc
import socket
import struct
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from gunicorn.app.base import BaseApplication
from gunicorn.workers.gthread import ThreadWorker

from hub.first_look import first_look
from hub.settings import environment, from_env
from hub.wire.pace import PacedSocket

if TYPE_CHECKING:
    from flask import Flask

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  # private heartbeat files, made by gunicorn


class Worker(ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn's threads, with none of them held by a slow client: a request's head must be whole in time, its body
    must keep a pace, and the reading of its answer may pause for so long and no longer.
    """

    head_seconds = 30.0
    idle_seconds = 60

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._heads: dict[Any, float] = {}

    def load_wsgi(self) -> None:
        """Make the application. What it is made of stays for good: the garbage collector need not look through it."""
        super().load_wsgi()
        gc.collect()
        gc.freeze()
        if self.age == 1:  # the first of several
            first_look(self.wsgi.extensions["packhouse"].services.archive)

    def handle(self, conn: Any) -> Any:
        """Read a request and answer it, in a thread."""
        self._heads[conn] = time.monotonic() + self.head_seconds
        try:
            return super().handle(conn)
        finally:
            self._heads.pop(conn, None)

    def handle_request(self, req: Any, conn: Any) -> Any:
        """Answer a request whose head is there."""
        self._heads.pop(conn, None)
        pause = struct.pack("ll", self.idle_seconds, 0)
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            conn.sock.setsockopt(socket.SOL_SOCKET, option, pause)
        unreader = conn.parser.unreader
        unreader.sock = PacedSocket(conn.sock, self.idle_seconds)
        try:
            return super().handle_request(req, conn)
        finally:
            unreader.sock = conn.sock  # what comes next is the head of another request

    def murder_pending(self) -> None:
        """End the connections that have taken too long; called by the main loop once a second."""
        super().murder_pending()
        now = time.monotonic()
        for conn, deadline in list(self._heads.items()):
            if deadline < now:
                with suppress(OSError):  # it has just ended by itself
                    conn.sock.shutdown(socket.SHUT_RD)


class Server(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn with our options in place of its own command line."""

    def __init__(self, options: dict[str, Any], statement_seconds: int) -> None:
        self.options = options
        self.statement_seconds = statement_seconds
        super().__init__()

    def load_config(self) -> None:
        """Take the options."""
        for name, value in self.options.items():
            self.cfg.set(name, value)

    def load(self) -> Flask:
        """Make the application, in each worker: a connection pool must not be forked."""
        from hub.app import create_app

        return create_app(statement_seconds=self.statement_seconds)


@click.command()
@click.option("--bind", default="127.0.0.1:8000", show_default=True, help="Address and port to listen on.")
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True, help="Processes.")
@click.option("--threads", type=click.IntRange(1), default=8, show_default=True, help="Threads a process.")
@click.option(
    "--head-timeout", type=click.IntRange(1), default=30, show_default=True, help="Seconds for the head of a request."
)
@click.option(
    "--idle-timeout",
    type=click.IntRange(1),
    default=60,
    show_default=True,
    help="Seconds that a body may pause, and may take beyond one for each 16 KiB.",
)
@click.option(
    "--statement-timeout",
    type=click.IntRange(0),
    default=60,
    show_default=True,
    help="Seconds that a statement of a request may take in the database; 0: no limit.",
)
def serve(bind: str, workers: int, threads: int, head_timeout: int, idle_timeout: int, statement_timeout: int) -> None:
    """Serve the hub over HTTP with gunicorn.

    The settings come from the environment; see the README.
    """
    from_env(environment())  # a wrong setting is one sentence here, and a traceback in every worker there
    import hub.app  # noqa: F401  # imported once, before the workers are forked; each makes its own application

    Worker.head_seconds, Worker.idle_seconds = head_timeout, idle_timeout
    options: dict[str, Any] = {
        "bind": bind,
        "control_socket_disable": True,
        "graceful_timeout": 10,
        "threads": threads,
        "worker_class": Worker,
        "workers": workers,
    }
    if SHARED_MEMORY.is_dir():
        options["worker_tmp_dir"] = str(SHARED_MEMORY)  # heartbeats must not wait for a busy disk
    Server(options, statement_timeout).run()
