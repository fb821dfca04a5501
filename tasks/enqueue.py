"""T0: requests become jobs, in the caller's transaction: one by one or thousands in a statement."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from psycopg import errors as pg

from tasks.db import Conn, rows, together
from tasks.errors import DuplicateJob, PayloadError
from tasks.ids import new_job_id
from tasks.job import Enqueued, NewJob
from tasks.payload import check_instant, new_job_params

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from uuid import UUID

PAGE_SIZE = 2000
"""Requests in one statement."""
_COLLISIONS_MAX = 10


@dataclass(slots=True)
class _Request:
    """A checked request. `first`: the earlier one of the same statement that has its key, if there is one."""

    new: NewJob
    params: dict[str, Any]
    first: _Request | None = None

    @property
    def joins(self) -> bool:
        return self.new.dedup_key is None or self.new.dedup_mode == "join"


def enqueue_job(conn: Conn, new: NewJob, *, now: datetime | None = None) -> Enqueued:
    """T0: put a job into the queue, or join the pending one that has the key.

    Raises PayloadError for what cannot be stored, DuplicateJob in mode `reject` when a pending job has the
    key, or when `new.job_id` is taken (then the transaction has failed).
    """
    return enqueue_jobs(conn, [new], now=now)[0]


def enqueue_jobs(conn: Conn, new: Sequence[NewJob], *, now: datetime | None = None) -> list[Enqueued]:
    """T0 for many, in order, as if each were enqueued by itself; some thousand a statement.

    All are checked before any SQL. Two transactions that join the same keys in different orders may wait for each
    other; Postgres then ends one with DeadlockDetected. Raises what `enqueue_job` raises.
    """
    at = check_instant("now", now)
    requests = [_checked(one) for one in new]
    done: list[Enqueued] = []
    # A child must not be seen without its parents, nor half of a list.
    with together(conn):
        for joining, group in groupby(requests, key=lambda request: request.joins):
            if joining:
                chosen = list(group)
                for start in range(0, len(chosen), PAGE_SIZE):
                    done += _enqueue_page(conn, chosen[start : start + PAGE_SIZE], at)
            else:
                done += [_enqueue_unique(conn, request, at) for request in group]
    return done


def _checked(new: NewJob) -> _Request:
    params = new_job_params(new)
    params["job_id"] = new.job_id or new_job_id()
    if params["job_id"] in new.parents:
        raise PayloadError("parents", "must not name the job itself")
    return _Request(new, params)


def _enqueue_page(conn: Conn, page: list[_Request], now: datetime | None) -> list[Enqueued]:
    merged = _merge(page)
    params = {name: [row[name] for row in merged] for name in merged[0]}
    params["after_tasks"] = [_array(names) for names in params["after_tasks"]]
    try:
        found = rows(conn, "enqueue_jobs", {**params, "now": now})
    except pg.UniqueViolation as error:
        raise DuplicateJob(f"there is already a job with this id: {error.diag.message_detail}") from error
    by_key = {(task, key): job_id for job_id, task, key, _ in found if key is not None}
    _add_dependencies(conn, page)
    done = []
    for request in page:
        own = request.params["job_id"]
        job_id = by_key.get((request.new.task, request.new.dedup_key), own)
        inserted = request.first is None and job_id == own
        done.append(Enqueued(job_id, "inserted" if inserted else "joined"))
    return done


def _merge(page: list[_Request]) -> list[dict[str, Any]]:
    """Fold the requests of one key into the first: a statement may touch a row once, and the result is the same."""
    firsts: dict[tuple[str, str], list[_Request]] = {}
    merged: list[dict[str, Any]] = []
    for request in page:
        key = request.new.dedup_key
        same = [] if key is None else firsts.setdefault((request.new.task, key), [])
        if not same:
            request.params["joins"] = 0
            merged.append(request.params)
        else:
            request.first = same[0]
        same.append(request)
    for same in firsts.values():
        if len(same) > 1:
            _fold(same[0].params, [request.params for request in same])
    return merged


def _fold(first: dict[str, Any], same: list[dict[str, Any]]) -> None:
    first["joins"] = len(same) - 1
    for name in ("priority", "attempts_max", "postpones_max"):
        first[name] = max(one[name] for one in same)
    # Seconds and instants stand side by side: the database, which knows the time, takes the earlier or the later.
    for name in ("available_at", "countdown"):
        first[name] = min((one[name] for one in same if one[name] is not None), default=None)
    never = any(one["expires_at"] is None and one["expires"] is None for one in same)
    for name in ("expires_at", "expires"):
        first[name] = None if never else max((one[name] for one in same if one[name] is not None), default=None)


def _array(names: Iterable[str]) -> str:
    """Write a one-dimensional text array as Postgres reads it: arrays of arrays must have equal lengths."""
    quoted = (name.replace("\\", "\\\\").replace('"', '\\"') for name in names)
    return "{" + ",".join(f'"{name}"' for name in quoted) + "}"


def _add_dependencies(conn: Conn, inserted: Iterable[_Request]) -> None:
    children: list[UUID] = []
    parents: list[UUID] = []
    positions: list[int] = []
    for request in inserted:
        children += [request.params["job_id"]] * len(request.new.parents)
        parents += request.new.parents
        positions += range(1, len(request.new.parents) + 1)
    if children:
        rows(conn, "add_dependencies", {"children": children, "parents": parents, "positions": positions})


def _enqueue_unique(conn: Conn, request: _Request, now: datetime | None) -> Enqueued:
    new, params = request.new, {**request.params, "now": now}
    for _ in range(_COLLISIONS_MAX):
        found = rows(conn, "enqueue_unique", params)
        if found:
            _add_dependencies(conn, [request])
            return Enqueued(found[0][0], "inserted")
        # The holder is committed, or ours: whoever was still open has been waited for by the insert.
        found = rows(conn, "find_duplicate", params)
        if found and new.dedup_mode == "once":
            return Enqueued(found[0][0], "duplicate")
        if found:
            raise DuplicateJob(f"task {new.task} has a pending job with this key: {found[0][0]}")
    raise DuplicateJob(f"there is already a job {params['job_id']}")
