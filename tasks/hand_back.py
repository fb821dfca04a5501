"""T9 for claims that a worker gives back unasked: it stops, or they have waited for a slot too long."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tasks import queue
from tasks.holding import REFUSED, Held
from tasks.pool import DATABASE_AWAY, ROW_AWAY, Pool
from tasks.verdict import describe

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger(__name__)


def hand_back(pool: Pool, claims: Sequence[Held]) -> int:
    """Release claims, whether they have started or not, in one transaction. Returns how many were released.

    What cannot be released is left to the sweep, and said in the log.
    """
    released = []
    try:
        with pool.transaction() as conn:
            for held in claims:
                try:
                    released.append((held, queue.release_job(conn, held.ref)))
                except REFUSED:
                    continue
    except ROW_AWAY as away:
        if len(claims) > 1:
            return sum(hand_back(pool, [held]) for held in claims)
        return _not_released(claims, away)
    except DATABASE_AWAY as away:
        return _not_released(claims, away)
    for held, outcome in released:
        # Not earlier: a task that is told so and returns must find its success refused.
        held.lost = True
        log.info("job_id=%s outcome=%s handed back", held.job_id, outcome)
    return len(released)


def _not_released(claims: Sequence[Held], away: Exception) -> int:
    for held in claims:
        log.error("job_id=%s not released, its lease must run out: %s", held.job_id, describe(away))
    return 0
