"""The threads in which a worker's jobs run."""

from __future__ import annotations

import logging
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING

from tasks.pool import DATABASE_AWAY
from tasks.verdict import describe

if TYPE_CHECKING:
    from collections.abc import Callable

    from tasks.holding import Held

log = logging.getLogger(__name__)


class Slots:
    """`count` daemon threads that call `work` with each claim that is put in.

    Daemons, since nothing can end a task that does not end by itself: it must not hold up the exit. What `work`
    raises is logged and the thread goes on, whatever it is.
    """

    def __init__(self, count: int, work: Callable[[Held], object]) -> None:
        self.threads: list[threading.Thread] = []
        self._count = count
        self._work = work
        self._inbox: SimpleQueue[Held | None] = SimpleQueue()

    def start(self) -> None:
        """Start the threads; again is harmless."""
        if not self.threads:
            names = [f"slot-{number}" for number in range(self._count)]
            self.threads = [threading.Thread(target=self._run, name=name, daemon=True) for name in names]
            for thread in self.threads:
                thread.start()

    def put(self, held: Held) -> None:
        """Hand a claim to the next free thread."""
        self._inbox.put(held)

    def close(self) -> None:
        """Let each thread end after the claim that it works on."""
        for _ in self.threads:
            self._inbox.put(None)

    def _run(self) -> None:
        while (held := self._inbox.get()) is not None:
            try:
                self._work(held)
            except DATABASE_AWAY as away:
                log.warning("no claim, the next poll tries again: %s", describe(away))
            except BaseException:
                log.exception("slot goes on after an unexpected error")
