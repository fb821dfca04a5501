"""Rate limits by cost: how much a token, or an address without one, may ask for in a minute.

A unit is an ordinary call, or a MiB of its body; calls that build or verify something cost more. Each process counts
for itself, in memory: the limits are there to stop a runaway script, not to bill.
"""

from __future__ import annotations

import math
import time

from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter

from hub.errors import TooMany

MIB = 1024 * 1024
UNKNOWN_BYTES = 16 * MIB
"""What a body counts whose length is not announced."""
HEAVY = 5
HEAVY_CALLS = frozenset({"muse.push", "muse.fetch", "mpack.push", "mpack.fetch", "download.archive"})
"""Calls that verify a pack, or may build a pack or an archive."""
REFUSED_TOKENS = 60
"""Tokens that name nobody, from one address in a minute: who guesses must not keep the database busy."""


def cost_of(call: str, body_bytes: int | None) -> int:
    """Units of a call with a body of so many bytes; None: it comes in chunks."""
    size = UNKNOWN_BYTES if body_bytes is None else body_bytes
    return (HEAVY if call in HEAVY_CALLS else 1) + size // MIB


class Rates:
    """The counters of one process. A limit of 0 units is none."""

    def __init__(self, *, per_token: int, per_address: int) -> None:
        self._limiter = FixedWindowRateLimiter(MemoryStorage())
        self._kinds = {
            kind: RateLimitItemPerMinute(units, namespace=kind)
            for kind, units in (("token", per_token), ("address", per_address), ("refused", REFUSED_TOKENS))
            if units
        }
        if not (per_token or per_address):
            self._kinds.clear()

    def spend(self, kind: str, who: str, cost: int) -> None:
        """Count `cost` units for this token or address. Raises TooMany, with the seconds until the minute is over."""
        limit = self._kinds.get(kind)
        # What costs more than a whole minute's units may be had once a minute.
        if limit is not None and not self._limiter.hit(limit, who, cost=min(cost, limit.amount)):
            self._refuse(limit, who)

    def check(self, kind: str, who: str) -> None:
        """Raise TooMany when all units are spent; count nothing."""
        limit = self._kinds.get(kind)
        if limit is not None and not self._limiter.test(limit, who):
            self._refuse(limit, who)

    def note(self, kind: str, who: str) -> None:
        """Count one unit and refuse nothing."""
        limit = self._kinds.get(kind)
        if limit is not None:
            self._limiter.hit(limit, who)

    def _refuse(self, limit: RateLimitItemPerMinute, who: str) -> None:
        left = self._limiter.get_window_stats(limit, who).reset_time - time.time()
        seconds = max(1, math.ceil(left))
        raise TooMany(f"Too much in one minute; go on in {seconds} seconds.", retry_after=seconds)
