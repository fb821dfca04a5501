"""T0: requests become jobs, in the caller's transaction: one by one or thousands in a statement."""

from __future__ import annotations

from functools import partial
from itertools import chain, islice, repeat, starmap
from typing import TYPE_CHECKING, Any, TypeVar

from psycopg.rows import tuple_row

from tasks.db import Conn, cursor, pipeline, savepoint, statement, together, uuid_array
from tasks.ids import new_job_ids
from tasks.job import Done, Enqueued, NewJob
from tasks.mixed import Read, errors_named, send_mixed
from tasks.payload import check_instant, encode_calls
from tasks.request import kind_params

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime
    from uuid import UUID

    from psycopg import Cursor

R = TypeVar("R")
PAGE_SIZE = 1000
"""Requests in one statement."""
_OWN = frozenset({"payload", "job_id"})
"""What differs among requests that are alike."""


def enqueue_job(conn: Conn, new: NewJob, *, now: datetime | None = None) -> Enqueued:
    """T0: put a job into the queue, or join the pending one that has the key.

    Raises PayloadError for what cannot be stored, DuplicateJob in mode `reject` when a pending job has the
    key, or when `new.job_id` is taken, NotMigrated where there are no job tables (then the transaction has failed).
    """
    return enqueue_jobs(conn, [new], now=now)[0]


def enqueue_jobs(conn: Conn, new: Iterable[NewJob], *, now: datetime | None = None) -> list[Enqueued]:
    """T0 for many, in order, as if each were enqueued by itself; a thousand a statement.

    While the database takes in one page the next one is made, so a refusal undoes what was sent before it: all are
    enqueued, or none. `new` may be lazy, but must not use the connection. Two transactions that join the same keys
    in different orders may wait for each other; Postgres then ends one with DeadlockDetected. Raises what
    `enqueue_job` raises.
    """
    return enqueue_as(Enqueued, conn, new, now=now)


def enqueue_as(
    make: Callable[[UUID, Done], R], conn: Conn, new: Iterable[NewJob], *, now: datetime | None = None
) -> list[R]:
    """Enqueue as `enqueue_jobs` does; `make` is called with the id of each job and what became of the request.

    What a thousand calls leave behind is what the garbage collector looks through: so nothing is made in between.
    """
    at = check_instant("now", now)
    ids = new_job_ids()
    pages = _pages(iter(new))
    first, second = next(pages, None), next(pages, None)
    if first is None:
        return []
    if second is None:
        # A child must not be seen without its parents.
        with together(conn):
            return [*starmap(make, _send(conn, first, ids, at)())]
    done: list[R] = []
    with savepoint(conn), pipeline(conn):
        read = _send(conn, first, ids, at)
        for page in chain((second,), pages):
            # The next one is on its way before the database asks for it.
            read_next = _send(conn, page, ids, at)
            done += starmap(make, read())
            read = read_next
        done += starmap(make, read())
    return done


def _pages(new: Iterator[NewJob]) -> Iterator[list[NewJob]]:
    while page := list(islice(new, PAGE_SIZE)):
        yield page


def _send(conn: Conn, page: Sequence[NewJob], ids: Iterator[UUID], now: datetime | None) -> Read:
    """Check and send requests; how to read what came of them, in order."""
    page_ids = [one.job_id or next(ids) for one in page]
    return (_send_alike if _are_alike(page) else send_mixed)(conn, page, page_ids, now)


def _are_alike(page: Sequence[NewJob]) -> bool:
    """Whether requests have all in common but what is their own, and no other job to join or to wait for."""
    if page[0].dedup_key is not None or page[0].parents:
        return False
    columns = zip(NewJob._fields, zip(*page, strict=True), strict=True)
    return all(_is_constant(column) for name, column in columns if name not in _OWN)


def _is_constant(column: tuple[Any, ...]) -> bool:
    # Equal is not the same: True == 1.
    return column.count(column[0]) == len(column) and len(set(map(type, column))) == 1


def _send_alike(conn: Conn, page: Sequence[NewJob], ids: Sequence[UUID], now: datetime | None) -> Read:
    params = {
        **kind_params(page[0]),
        "job_ids": uuid_array(ids),
        "payloads": encode_calls([one.payload for one in page]),
        "now": now,
    }
    cur = cursor(conn, tuple_row)
    with errors_named():
        cur.execute(statement("enqueue_alike"), params)
    return partial(_read_alike, cur, ids)


def _read_alike(cur: Cursor[Any], ids: Sequence[UUID]) -> Iterable[tuple[UUID, Done]]:
    with errors_named(), cur:
        cur.fetchall()
    return zip(ids, repeat("inserted"), strict=False)
