"""T1, and what keeps it cheap: the lanes of pending jobs.

A claim looks only at jobs in the lane `ready`. Jobs that are not due wait in `later`, jobs with gates come in through
`unchecked` and are `parked` while something shuts them. Lanes are hints: whether a job may run is said by the
predicates of the claim. The job that a parked one waits for unparks it when it ends, or leaves it to the next claims
(`tasks.lanes`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tasks.db import Conn, records, rows, together
from tasks.job import Claim
from tasks.lanes import unpark_rest
from tasks.payload import WORKER_BYTES_MAX, check_instant, check_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

PROMOTE_MAX = 1000
"""Jobs that become due in one step of a claim."""
CHECK_MIN = 8
"""Unchecked jobs that a claim looks at in any case, beside two for each job that it may take."""
CHECK_MAX = 1000
CHECK_STEPS_MAX = 10
"""A claim that finds too little goes on looking, so many pages further at most; the next claim continues."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What was done before the claim.

    `gated`: jobs with gates were ready before. `keys`: limits locked by us. `more`: there may be claimable jobs
    behind what was looked at. `planner`: the settings that the claim's statement has to give back.
    """

    gated: bool
    keys: list[str]
    more: bool
    planner: dict[str, str]


def claim_jobs(
    conn: Conn,
    *,
    worker: str,
    tasks: Sequence[str],
    queues: Sequence[str],
    limit: int,
    now: datetime | None = None,
) -> list[Claim]:
    """T1: claim up to `limit` due jobs of these tasks and queues, in order; gates, limits and budget respected.

    Several statements: commit soon after, the limits it has counted are locked until then.
    """
    if limit < 1 or not tasks or not queues:
        return []
    check_text("worker", worker, WORKER_BYTES_MAX)
    at = check_instant("now", now)
    params: dict[str, Any] = {"worker": worker, "tasks": list(tasks), "queues": list(queues), "now": at}
    with together(conn):
        return _claim(conn, params, limit)


def _claim(conn: Conn, params: dict[str, Any], limit: int) -> list[Claim]:
    claims: list[Claim] = []
    page = max(CHECK_MIN, 2 * limit)
    for steps in range(1, CHECK_STEPS_MAX + 1):  # noqa: B007  # the last one is asked for below
        params["limit"] = limit - len(claims)
        prepared = _prepare(conn, params, page)
        admitted = rows(conn, "admit_limited", {**params, "keys": prepared.keys}) if prepared.keys else []
        found = {**params, **prepared.planner, "admitted": [row[0] for row in admitted]}
        claims += records(conn, "claim_jobs", Claim, found)
        if prepared.gated:
            rows(conn, "recheck_gates", {**params, "limit": page, "keys": prepared.keys})
        if len(claims) >= limit or not prepared.more:
            break
        page = CHECK_MAX
    return claims if steps == 1 else sorted(claims, key=lambda claim: (-claim.priority, claim.created_at))


def _prepare(conn: Conn, params: Mapping[str, Any], page: int) -> _Prepared:
    """Move what is due and what is not shut to where the claim looks."""
    due = {"limit": PROMOTE_MAX, "claims": params["limit"], "now": params["now"]}
    ((promoted, _, seqscan, jit, unparking, unchecked, gated, limited),) = rows(conn, "promote_due", due)
    more = promoted == PROMOTE_MAX
    if unparking:
        freed = unpark_rest(conn, limit=page)
        more |= freed == page
        unchecked |= freed > 0
    keys: list[str] = []
    if limited and (unchecked or gated):
        keys = [row[0] for row in rows(conn, "lock_limits", {**params, "limit": page})]
    if unchecked:
        ((seen, _, _),) = rows(conn, "check_gates", {"limit": page, "keys": keys, "claims": params["limit"]})
        more |= seen == page
    return _Prepared(gated=gated, keys=keys, more=more, planner={"seqscan": seqscan, "jit": jit})
