"""The object store fails in the middle of a task: refusals, answers that are lost, and a PUT that comes last."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

import tasks
from storage import Fault, FaultyStore, MemoryStore
from tasks.sweep import sweep
from tasks.testing import check_invariants
from tests.tasks.running import WAIT_SECONDS, Stop, endings, in_thread, job_row, make_app

pytestmark = pytest.mark.integration

Db = psycopg.Connection[Any]
POINT = text("INSERT INTO public.pointer VALUES (:key, 'pack') ON CONFLICT (name) DO UPDATE SET key = excluded.key")
BUDGET = 5
BASE_SECONDS = 100.0


class Pack:
    """A task that writes an object under a key of its own and makes it the current one together with its success."""

    def __init__(self, app: tasks.App, store: FaultyStore) -> None:
        self.app = app
        self.store = store
        self.keys: list[str] = []

        @app.task(
            "pack", bind=True, transactional=True, max_attempts=BUDGET, retry=tasks.Exponential(BASE_SECONDS, cap=1e4)
        )
        def pack(self_: tasks.Context) -> None:
            key = self_.fence_key("pack")
            self.keys.append(key)
            self.store.put(key, f"attempt {self_.request.attempt}".encode())
            self_.session.execute(POINT, {"key": key})

        self.task = pack

    def enqueue(self, conn: Db) -> Any:
        job = self.task.delay()
        conn.commit()
        return job.id

    def current(self, conn: Db) -> bytes | None:
        """The object that the pointer names."""
        conn.rollback()
        row = conn.execute("SELECT key FROM public.pointer").fetchone()
        conn.rollback()
        if row is None:
            return None
        with self.store.get(row[0]) as body:
            return b"".join(body)


@pytest.fixture
def app(database_url: str, committed_db: Db) -> Iterator[tasks.App]:
    engine = create_engine(database_url.replace("postgresql://", "postgresql+psycopg://"))
    committed_db.execute("CREATE TABLE public.pointer (key text NOT NULL, name text PRIMARY KEY)")
    committed_db.commit()
    app = make_app(database_url, committed_db)
    app.configure(session=lambda: Session(engine))
    yield app
    engine.dispose()
    committed_db.rollback()
    check_invariants(committed_db)
    committed_db.execute("DROP TABLE public.pointer")
    committed_db.commit()


def hours(count: int) -> datetime:
    """An instant so many hours from now."""
    return datetime.now(UTC) + timedelta(hours=count)


def run(app: tasks.App, hour: int) -> list[str]:
    """Run what is due in so many hours, once."""
    with tasks.Worker(app, concurrency=1) as worker:
        return [settled.outcome for settled in worker.once(now=hours(hour))]


def test_a_store_that_is_away_costs_attempts_with_growing_pauses(app: tasks.App, committed_db: Db) -> None:
    """Case 35: refused three times, then accepted with a lost answer, then well: five attempts of five."""
    faults = [Fault.REFUSED] * 3 + [Fault.ANSWER_LOST, None]
    pack = Pack(app, FaultyStore(MemoryStore(), script=[("put", fault) for fault in faults]))
    job_id = pack.enqueue(committed_db)
    pauses = []
    for hour in range(1, BUDGET):
        assert run(app, hour) == ["retry"]
        assert pack.current(committed_db) is None
        row = job_row(committed_db, job_id)
        pauses.append((row["available_at"] - row["last_error_at"]).total_seconds())
    assert run(app, BUDGET) == ["succeeded"]
    assert endings(committed_db, job_id) == ["FAILED"] * 4 + ["SUCCEEDED"]
    spread = tasks.Exponential(BASE_SECONDS, cap=1e4).spread
    for number, pause in enumerate(pauses):
        assert BASE_SECONDS * 2**number * (1 - spread) <= pause <= BASE_SECONDS * 2**number * (1 + spread)
    assert len({round(pause / 2**number, 6) for number, pause in enumerate(pauses)}) > 1, "no jitter"
    assert pack.current(committed_db) == b"attempt 5"
    assert len(set(pack.keys)) == BUDGET, "each attempt has its own key"


def test_a_store_that_stays_away_ends_the_job_with_its_budget(app: tasks.App, committed_db: Db) -> None:
    """Case 35."""
    pack = Pack(app, FaultyStore(MemoryStore(), rate=1.0))
    job_id = pack.enqueue(committed_db)
    assert [run(app, hour) for hour in range(1, BUDGET + 2)] == [["retry"]] * 4 + [["failed"], []]
    assert job_row(committed_db, job_id)["last_error_code"] == "UNAVAILABLE"
    assert pack.current(committed_db) is None


def test_the_put_of_a_zombie_that_comes_last_is_never_the_current_object(app: tasks.App, committed_db: Db) -> None:
    """Case 35: attempt 1 hangs in its PUT, loses its claim, and gets through after attempt 2 has succeeded."""
    slow = Stop()

    def hang_first(op: str, key: str, phase: str) -> None:
        if (op, phase, key) == ("put", "before", pack.keys[0]):
            slow()

    pack = Pack(app, FaultyStore(MemoryStore(), hook=hang_first))
    job_id = pack.enqueue(committed_db)
    outcomes: list[str] = []
    zombie = in_thread(lambda: outcomes.extend(run(app, 0)))
    assert slow.reached.wait(WAIT_SECONDS)
    assert sweep(committed_db, now=hours(1)).requeued == 1
    committed_db.commit()
    assert run(app, 1) == ["succeeded"]
    slow.go.set()
    zombie.join(WAIT_SECONDS)
    assert outcomes == ["lost"]
    assert [stat.key for stat in pack.store.list()] == sorted(pack.keys), "both objects are there"
    assert pack.current(committed_db) == b"attempt 2"
    assert endings(committed_db, job_id) == ["ABANDONED", "SUCCEEDED"]
