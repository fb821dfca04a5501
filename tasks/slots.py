"""The threads in which a worker's jobs run."""

from __future__ import annotations

import logging
import threading
import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from tasks.holding import Held
from tasks.pool import DATABASE_AWAY
from tasks.verdict import describe

if TYPE_CHECKING:
    from collections.abc import Callable

    from tasks.attempt import Ended

log = logging.getLogger(__name__)


class Slots:
    """`count` daemon threads that call `work` with each claim, or each ended attempt, that is put in.

    Daemons, since nothing can end a task that does not end by itself: it must not hold up the exit. What `work`
    raises is logged and the thread goes on, whatever it is.
    """

    def __init__(self, count: int, work: Callable[[Held | Ended], object]) -> None:
        self.threads: list[threading.Thread] = []
        self._count = count
        self._work = work
        self._inbox: SimpleQueue[Held | Ended | None] = SimpleQueue()
        self._taken_at = 0.0

    def start(self) -> None:
        """Start the threads; again is harmless."""
        if not self.threads:
            names = [f"slot-{number}" for number in range(self._count)]
            self.threads = [threading.Thread(target=self._run, name=name, daemon=True) for name in names]
            for thread in self.threads:
                thread.start()

    def put(self, item: Held | Ended) -> None:
        """Hand it to the next free thread."""
        if not self.waiting:
            self._taken_at = time.monotonic()
        self._inbox.put(item)

    @property
    def waiting(self) -> int:
        """Number of items that no thread has taken yet."""
        return self._inbox.qsize()

    @property
    def stuck_seconds(self) -> float:
        """For how long what waits has been waiting without any thread taking a piece of it."""
        return time.monotonic() - self._taken_at if self.waiting else 0.0

    def take_back(self) -> list[Held]:
        """Take out the claims that no thread has taken yet, in order."""
        taken: list[Held] = []
        others: list[Ended | None] = []
        while True:
            try:
                item = self._inbox.get_nowait()
            except Empty:
                break
            if isinstance(item, Held):
                taken.append(item)
            else:
                others.append(item)
        for other in others:
            self._inbox.put(other)
        return taken

    def close(self) -> None:
        """Let each thread end after what it works on."""
        for _ in self.threads:
            self._inbox.put(None)

    def _run(self) -> None:
        while (item := self._inbox.get()) is not None:
            self._taken_at = time.monotonic()
            try:
                self._work(item)
            except DATABASE_AWAY as away:
                log.warning("no claim, the next poll tries again: %s", describe(away))
            except BaseException:
                log.exception("slot goes on after an unexpected error")
