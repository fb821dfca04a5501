"""Races held open at their critical place: failpoints, and Postgres' own word on who waits for whom."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
from sqlalchemy import event
from werkzeug.test import TestResponse

from hub.work import INDEX
from tasks.worker import Worker
from tests.hub.views import cached, cached_contents, check, fetch_mpack, jobs, model, rows
from tests.hub.world import History, World

Connect = Callable[[], psycopg.Connection[Any]]
WAIT_SECONDS = 30


def wait_until_blocked(connect: Connect, blocker: int) -> None:
    """Return once some backend waits for a lock that the backend `blocker` holds."""
    deadline = time.monotonic() + WAIT_SECONDS
    with connect() as watcher:
        watcher.autocommit = True
        while time.monotonic() < deadline:
            found = watcher.execute(
                "SELECT pid FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))", [blocker]
            ).fetchone()
            if found:
                return
    raise AssertionError("nobody waits")


def backend(session: Any) -> int:
    return int(session.connection().exec_driver_sql("SELECT pg_backend_pid()").scalar_one())


@contextmanager
def beside(call: Callable[[], Any]) -> Iterator[Future[Any]]:
    """Run `call` in a thread beside the block; it must end after it."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(call)
        yield future
        future.result(WAIT_SECONDS)


@contextmanager
def before_commit_of_a_push(world: World, do: Callable[[Any], None]) -> Iterator[None]:
    """Call `do` once, with the session of the next push, when its rows and jobs are written and not yet committed."""
    called = False

    def hook(session: Any) -> None:
        nonlocal called
        if called or not any(type(item).__name__ == "Push" for item in session.new):
            return
        called = True
        session.flush()
        do(session)

    event.listen(world.hub.services.sessions, "before_commit", hook)
    try:
        yield
    finally:
        event.remove(world.hub.services.sessions, "before_commit", hook)
    assert called


class Failpoint:
    """Hook of a store: calls `do` once, at the first operation of this kind on a pack after it was armed."""

    def __init__(self, op: str, phase: str = "before", *, prefix: str = "mpacks/") -> None:
        self._at = (op, phase)
        self._prefix = prefix
        self._do: Callable[[], object] | None = None

    def arm(self, do: Callable[[], object]) -> None:
        self._do = do

    def __call__(self, op: str, key: str, phase: str) -> None:
        if self._do is not None and (op, phase) == self._at and key.startswith(self._prefix):
            do, self._do = self._do, None
            do()

    @property
    def was_reached(self) -> bool:
        return self._do is None


def index_all(world: World) -> None:
    """Run the index jobs, and leave the prebuild."""
    with Worker(world.hub.work.app, concurrency=1) as worker:
        while jobs(world, INDEX, "pending"):
            worker.once()


def pushed(answer: TestResponse) -> None:
    assert answer.status_code == 200, answer.data


def at_tip(world: World, history: History, *tips: str) -> None:
    """The clone cache is at these tips and whole, no job is left or failed, the history of the queue is right."""
    assert cached(world).keys() == set(tips)
    assert cached_contents(world) == fetch_mpack(world) == model(history, tips)
    assert {job.status for job in jobs(world)} <= {"succeeded", "cancelled"}
    assert rows(world, "SELECT count(*) FROM tasks.attempt WHERE result = 'FAILED'")[0][0] == 0
    check(world)
