"""Rings the worker's bell when jobs arrive: LISTEN on a connection of its own.

Only ever a hint. A lost notification, a dead connection or a pooler that does not pass notifications on costs
the time until the next poll, never a job.
"""

from __future__ import annotations

import logging
import os
import random
import secrets
import socket
import threading
from typing import TYPE_CHECKING

import psycopg

from tasks.pool import connect_options
from tasks.verdict import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

log = logging.getLogger(__name__)

CHANNEL = "tasks"
"""The statements' NOTIFY channel; a payload is the name of a queue that has a job to run now."""
LOOK_SECONDS = 0.5
"""How often the thread looks whether it is to stop."""
PROBE_SECONDS = 15.0
"""After so long a silence the listener notifies itself: LISTEN alone does not notice that it died quietly."""
ANSWER_SECONDS = 5.0
"""How long that notification may take to come back."""
ASK = b"SELECT pg_notify(%s, '')"
PAUSE_SECONDS_MAX = 5.0


class Listener(threading.Thread):
    """Calls `ring` for each batch of notifications about one of `queues`, and once after each (re)connect."""

    def __init__(self, database_url: str, queues: Sequence[str], ring: Callable[[], object]) -> None:
        super().__init__(name="listener", daemon=True)
        self.listening = threading.Event()
        """Set while a LISTEN is in force."""
        self._database_url = database_url
        self._queues = frozenset(queues)
        self._ring = ring
        self._stopping = threading.Event()

    def stop(self) -> None:
        """End the thread and its connection."""
        self._stopping.set()
        self.join(LOOK_SECONDS * 4)

    def run(self) -> None:
        """Listen until stopped; reconnect with a jittered, growing, bounded pause."""
        pause = 0.1
        while not self._stopping.is_set():
            try:
                with psycopg.connect(self._database_url, autocommit=True, **connect_options()) as conn:
                    own = f"{CHANNEL}_{secrets.token_hex(8)}"
                    _execute(conn, f"LISTEN {CHANNEL}; LISTEN {own}".encode())
                    pause = 0.1
                    self.listening.set()
                    self._listen(conn, own)
            except (psycopg.Error, OSError) as error:
                log.warning("not listening, polling goes on: %s", describe(error))
            finally:
                self.listening.clear()
            self._stopping.wait(pause * random.uniform(0.5, 1.0))  # noqa: S311  # jitter, no secret
            pause = min(pause * 2, PAUSE_SECONDS_MAX)

    def _listen(self, conn: psycopg.Connection[tuple[object, ...]], own: str) -> None:
        # What was announced before the LISTEN was in force is found by one look now.
        self._ring()
        silent, asked = 0.0, False
        while not self._stopping.is_set():
            heard = list(conn.notifies(timeout=LOOK_SECONDS, stop_after=1))
            silent, asked = (0.0, False) if heard else (silent + LOOK_SECONDS, asked)
            if any(note.channel == CHANNEL and note.payload in self._queues for note in heard):
                self._ring()
            if asked and silent >= ANSWER_SECONDS:
                raise psycopg.OperationalError("notifications do not arrive: behind a pooler use --no-listen")
            if not asked and silent >= PROBE_SECONDS:
                _execute(conn, ASK, (own,))
                silent, asked = 0.0, True


def _execute(conn: psycopg.Connection[tuple[object, ...]], query: bytes, params: tuple[str, ...] | None = None) -> None:
    """Execute within ANSWER_SECONDS: a server that takes the query and never answers is cut off then."""
    cutter = threading.Timer(ANSWER_SECONDS, _cut, [conn])
    cutter.daemon = True
    cutter.start()
    try:
        conn.execute(query, params)
    finally:
        cutter.cancel()


def _cut(conn: psycopg.Connection[tuple[object, ...]]) -> None:
    """Make whoever waits for the server see the end of the connection."""
    with socket.socket(fileno=os.dup(conn.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)
