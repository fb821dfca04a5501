"""Rings the worker's bell when jobs arrive: LISTEN on a connection of its own.

Only ever a hint. A lost notification, a dead connection or a pooler that does not pass notifications on costs
the time until the next poll, never a job.
"""

from __future__ import annotations

import logging
import random
import threading
from typing import TYPE_CHECKING

import psycopg

from tasks.pool import connect_options
from tasks.verdict import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

log = logging.getLogger(__name__)

CHANNEL = "tasks"
LOOK_SECONDS = 0.5
"""How often the thread looks whether it is to stop."""
PROBE_SECONDS = 15.0
"""A connection silent for so long is asked for a sign of life: LISTEN alone does not notice a dead peer."""
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
                    conn.execute(f"LISTEN {CHANNEL}")
                    pause = 0.1
                    self.listening.set()
                    self._listen(conn)
            except (psycopg.Error, OSError) as error:
                log.warning("not listening, polling goes on: %s", describe(error))
            finally:
                self.listening.clear()
            self._stopping.wait(pause * random.uniform(0.5, 1.0))  # noqa: S311  # jitter, no secret
            pause = min(pause * 2, PAUSE_SECONDS_MAX)

    def _listen(self, conn: psycopg.Connection[tuple[object, ...]]) -> None:
        # What was announced before the LISTEN was in force is found by one look now.
        self._ring()
        silent = 0.0
        while not self._stopping.is_set():
            named = {note.payload for note in conn.notifies(timeout=LOOK_SECONDS, stop_after=1)}
            silent = 0.0 if named else silent + LOOK_SECONDS
            if named & self._queues:
                self._ring()
            if silent >= PROBE_SECONDS:
                conn.execute("SELECT 1")
                silent = 0.0
