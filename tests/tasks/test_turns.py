"""Two turns at once: when there is a second one, and that together they claim no more than there is room for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import tasks
from tasks import flow as flowing
from tasks import queue
from tasks.testing import check_invariants
from tests.tasks.running import WAIT_SECONDS, Stop, in_thread, job_row, make_app

pytestmark = pytest.mark.integration

Connection = psycopg.Connection[Any]
SLOTS = 4


class Turns:
    """A worker with SLOTS ended attempts, whose first turn stops in its transaction."""

    def __init__(self, worker: tasks.Worker, conn: Connection, ids: list[Any], stop: Stop) -> None:
        self.flow = worker._flow
        self.ids = ids
        self._conn = conn
        self._stop = stop
        worker.tick()
        claims = self.flow.slots.take_back()
        self.ended = [self.flow._attempts.run(held) for held in claims]
        assert len(self.ended) == SLOTS

    def statuses(self) -> list[str]:
        return [job_row(self._conn, job_id)["status"] for job_id in self.ids[:SLOTS]]

    def begin(self) -> threading.Thread:
        """Let the first turn begin, with one end; it stands in its transaction when this returns."""
        self.flow._ended.append(self.ended[0])
        first = in_thread(self.flow.turns)
        assert self._stop.reached.wait(WAIT_SECONDS)
        return first

    def end(self, first: threading.Thread) -> None:
        self._stop.go.set()
        first.join(WAIT_SECONDS)
        assert not first.is_alive()


@pytest.fixture
def turns(database_url: str, committed_db: Connection, monkeypatch: pytest.MonkeyPatch) -> Iterator[Turns]:
    monkeypatch.setattr(flowing, "BESIDE", 2)
    app = make_app(database_url, committed_db)
    app.task("note", max_attempts=1)(lambda number: number)
    ids = [app["note"].delay(number).id for number in range(20)]
    committed_db.commit()
    stop, once, finish = Stop(), iter([True]), queue.finish_jobs

    def stop_once(conn: Connection, results: Any, **options: Any) -> set[Any]:
        if results and next(once, False):
            stop()
        return finish(conn, results, **options)

    with tasks.Worker(app, concurrency=SLOTS) as worker:
        made = Turns(worker, committed_db, ids, stop)
        monkeypatch.setattr(queue, "finish_jobs", stop_once)
        yield made
        stop.go.set()
    check_invariants(committed_db)


def test_a_second_turn_goes_beside_the_first_when_enough_has_ended(turns: Turns) -> None:
    first = turns.begin()
    turns.flow._ended.extend(turns.ended[1:])
    assert turns.flow.turns() == SLOTS - 1
    assert turns.statuses() == ["running", "succeeded", "succeeded", "succeeded"]
    turns.end(first)
    assert turns.statuses() == ["succeeded"] * SLOTS


def test_two_turns_together_claim_no_more_than_there_is_room_for(turns: Turns) -> None:
    first = turns.begin()
    turns.flow._ended.extend(turns.ended[1:])
    turns.flow.turns()
    assert turns.flow.room() == 0, "the first one's place is asked for already"
    turns.end(first)
    assert len(turns.flow.held) == turns.flow.slots.waiting == SLOTS
    assert turns.flow.room() == 0


def test_what_is_not_worth_a_second_turn_is_settled_after_the_first(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flowing, "WINDOW_SECONDS", 0.0)
    first = turns.begin()
    turns.flow._ended.append(turns.ended[1])
    assert turns.flow.turns() == 0
    assert turns.statuses()[1] == "running"
    turns.end(first)
    assert turns.statuses() == ["succeeded", "succeeded", "running", "running"]
    turns.flow._ended.extend(turns.ended[2:])
    turns.flow.turns(flush=True)


def test_a_turn_that_fails_gives_its_room_back(turns: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    room = turns.flow.room()

    def away(*_: object, **__: object) -> None:
        raise psycopg.OperationalError("away")

    with monkeypatch.context() as patch:
        patch.setattr(queue, "finish_jobs", away)
        turns.flow._ended.extend(turns.ended)
        with pytest.raises(psycopg.OperationalError):
            turns.flow.turns(flush=True)
    assert turns.flow.room() == room
    assert (turns.flow._leaving, turns.flow._asked) == (0, 0)
