"""When to try again, after how long, and when to give up: for calls that may be repeated without harm."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from hub.client.errors import ClientError, NoAnswer, NotReady, Refused

TRANSIENT = frozenset({429, 502, 503, 504})
"""Statuses after which the same request may succeed."""
BACKOFF_SECONDS_FIRST = 0.5
BACKOFF_SECONDS_MAX = 10.0


@dataclass(frozen=True, slots=True)
class Timing:
    """How long the client waits for what.

    `wait_seconds` bounds all waiting between the tries of one call; `tries` bounds failures in a row, but for
    MPACK_NOT_READY, which is no failure. `sleep`, `clock` and `chance` are there so that tests need no time.
    """

    wait_seconds: float = 300.0
    tries: int = 5
    connect_seconds: float = 10.0
    read_seconds: float = 60.0
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random


class Patience:
    """Counts the failures of one call."""

    def __init__(self, timing: Timing, on_wait: Callable[[ClientError, float], None]) -> None:
        self._timing = timing
        self._on_wait = on_wait
        self.renew()

    def renew(self) -> None:
        """Begin to count afresh: progress was made."""
        self._failures = 0
        self._rounds = 0
        self._give_up_at = self._timing.clock() + self._timing.wait_seconds

    def wait_or_raise(self, error: ClientError) -> None:
        """Sleep until the next try is due; raise `error` when there is to be none.

        There is none after an error that repeats itself, after `tries` failures, and when the next try would
        be later than `wait_seconds` allow (a server's Retry-After is never cut short).
        """
        if not _is_transient(error):
            raise error
        self._rounds += 1
        if not isinstance(error, NotReady):
            self._failures += 1
            if self._failures >= self._timing.tries:
                raise error
        seconds = self._delay(error)
        if self._timing.clock() + seconds > self._give_up_at:
            raise error
        self._on_wait(error, seconds)
        self._timing.sleep(seconds)

    def _delay(self, error: ClientError) -> float:
        backoff: float = min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_FIRST * 2 ** min(self._rounds - 1, 10))
        asked = error.retry_after if isinstance(error, Refused) else None
        if asked is None:
            return backoff * (0.5 + self._timing.chance() / 2)
        # A little later than asked, never earlier: clients told the same second must not come back as one.
        return max(asked, 0.1) * (1 + self._timing.chance() / 10)


def _is_transient(error: ClientError) -> bool:
    return isinstance(error, NoAnswer) or (isinstance(error, Refused) and error.status in TRANSIENT)
