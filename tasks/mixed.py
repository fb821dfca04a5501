"""T0 for requests that differ: those that may join are sent together, the others one by one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from uuid import UUID

from psycopg import errors as pg
from psycopg.rows import tuple_row

from tasks.db import Conn, cursor, rows, statement, uuid_array
from tasks.errors import DuplicateJob, NotMigrated, PayloadError
from tasks.job import Done, Enqueued, NewJob
from tasks.pool import NOT_MIGRATED, what_is_missing
from tasks.request import kind_params, own_params

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from psycopg import Cursor

Read = Callable[[], Iterable[tuple[UUID, Done]]]
"""Waits for what became of requests that were sent: id of the job and outcome of each, in order."""
_COLLISIONS_MAX = 10


_Params = dict[str, Any]
_COMMON = attrgetter(
    *("task", "queue", "scope", "priority", "tier", "available_at", "countdown", "lease_seconds", "attempts_max"),
    *("postpones_max", "dedup_mode", "expires_at", "expires", "limit_key", "limit_max", "on_parent_failure"),
    "pass_results",
)


@dataclass(slots=True)
class _Request:
    """A checked request, ready to be sent.

    `kind`: what it has in common with others, one object for all of them. `first`: the earlier request of the same
    statement that has its key, if there is one.
    """

    job_id: UUID
    kind: _Params
    payload: str
    key: str | None
    parents: Sequence[UUID]
    first: _Request | None = None

    @property
    def joins(self) -> bool:
        return self.key is None or self.kind["dedup_mode"] == "join"


@contextmanager
def errors_named() -> Iterator[None]:
    """Say what the errors of an enqueue statement mean: DuplicateJob, NotMigrated."""
    try:
        yield
    except pg.UniqueViolation as error:
        raise DuplicateJob(f"there is already a job with this id: {error.diag.message_detail}") from error
    except NOT_MIGRATED as error:
        raise NotMigrated(f"the database {what_is_missing(error)}") from error


def send_mixed(conn: Conn, page: Sequence[NewJob], ids: Sequence[UUID], now: datetime | None) -> Read:
    """Check and send requests in order; how to read what came of them. Raises what `enqueue_jobs` raises."""
    kinds: dict[Hashable, _Params] = {}
    requests = [_checked(new, job_id, kinds) for new, job_id in zip(page, ids, strict=True)]
    sent: list[Read] = []
    for joining, group in groupby(requests, key=lambda request: request.joins):
        if joining:
            sent.append(_send_joining(conn, list(group), now))
        else:
            sent.append(partial(list, [_enqueue_unique(conn, request, now) for request in group]))
    return lambda: [done for read in sent for done in read()]


def _checked(new: NewJob, job_id: UUID, kinds: dict[Hashable, _Params]) -> _Request:
    common = (*_COMMON(new), tuple(new.after_tasks), len(new.parents), new.dedup_key is None)
    same = (common, *map(type, common))  # equal is not the same: True == 1
    try:
        kind = kinds.get(same)
        if kind is None:
            kind = kinds[same] = kind_params(new)
    except TypeError:  # what cannot be hashed is no value of any field: this names it
        kind = kind_params(new)
    if job_id in new.parents:
        raise PayloadError("parents", "must not name the job itself")
    return _Request(job_id, kind, *own_params(new), new.parents)


def _send_joining(conn: Conn, page: list[_Request], now: datetime | None) -> Read:
    merged = _merge(page)
    numbers: dict[int, int] = {}
    kinds: list[_Params] = []
    for request in merged:
        if id(request.kind) not in numbers:
            numbers[id(request.kind)] = len(kinds)
            kinds.append({"joins": 0, **request.kind, "kind": len(kinds)})
    params = {
        "kinds": json.dumps(kinds, default=datetime.isoformat),
        "kind_of": "{" + ",".join([str(numbers[id(request.kind)]) for request in merged]) + "}",
        "job_ids": uuid_array([request.job_id for request in merged]),
        "payloads": "[" + ",".join([request.payload for request in merged]) + "]",
        "dedup_keys": json.dumps([request.key for request in merged]),
        "now": now,
    }
    cur = cursor(conn, tuple_row)
    with errors_named():
        cur.execute(statement("enqueue_jobs"), params)
    _add_dependencies(conn, page)
    return partial(_read_joining, cur, page)


def _read_joining(cur: Cursor[tuple[Any, ...]], page: list[_Request]) -> list[Enqueued]:
    with errors_named(), cur:
        by_key = {(task, key): job_id for job_id, task, key in cur.fetchall()}
    done = []
    for request in page:
        job_id = request.job_id
        if request.key is not None:
            job_id = by_key[request.kind["task"], request.key]
        inserted = request.first is None and job_id == request.job_id
        done.append(Enqueued(job_id, "inserted" if inserted else "joined"))
    return done


def _merge(page: list[_Request]) -> list[_Request]:
    """Fold the requests of one key into the first: a statement may touch a row once, and the result is the same."""
    firsts: dict[tuple[str, str], list[_Request]] = {}
    merged: list[_Request] = []
    for request in page:
        if request.key is None:
            merged.append(request)
            continue
        same = firsts.setdefault((request.kind["task"], request.key), [])
        if same:
            request.first = same[0]
        else:
            merged.append(request)
        same.append(request)
    for same in firsts.values():
        if len(same) > 1:
            same[0].kind = _fold([request.kind for request in same])
    return merged


def _fold(same: list[_Params]) -> _Params:
    first = {**same[0], "joins": len(same) - 1}
    for name in ("priority", "attempts_max", "postpones_max"):
        first[name] = max(one[name] for one in same)
    # Seconds and instants stand side by side: the database, which knows the time, takes the earlier or the later.
    for name in ("available_at", "countdown"):
        first[name] = min((one[name] for one in same if one[name] is not None), default=None)
    never = any(one["expires_at"] is None and one["expires"] is None for one in same)
    for name in ("expires_at", "expires"):
        first[name] = None if never else max((one[name] for one in same if one[name] is not None), default=None)
    return first


def _add_dependencies(conn: Conn, inserted: Iterable[_Request]) -> None:
    children: list[UUID] = []
    parents: list[UUID] = []
    positions: list[int] = []
    for request in inserted:
        children += [request.job_id] * len(request.parents)
        parents += request.parents
        positions += range(1, len(request.parents) + 1)
    if children:
        rows(conn, "add_dependencies", {"children": children, "parents": parents, "positions": positions})


def _enqueue_unique(conn: Conn, request: _Request, now: datetime | None) -> Enqueued:
    own = {"job_id": request.job_id, "payload": request.payload, "dedup_key": request.key}
    params = {**request.kind, **own, "now": now}
    for _ in range(_COLLISIONS_MAX):
        with errors_named():
            found = rows(conn, "enqueue_unique", params)
        if found:
            _add_dependencies(conn, [request])
            return Enqueued(found[0][0], "inserted")
        # The holder is committed, or ours: whoever was still open has been waited for by the insert.
        found = rows(conn, "find_duplicate", params)
        if found and params["dedup_mode"] == "once":
            return Enqueued(found[0][0], "duplicate")
        if found:
            raise DuplicateJob(f"task {params['task']} has a pending job with this key: {found[0][0]}")
    raise DuplicateJob(f"there is already a job {params['job_id']}")
