"""Payloads, results and errors that other queues could not store: refused by name, or kept; never a stuck job."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import tasks
from tasks import queue
from tasks.errors import PayloadError
from tasks.testing import check_invariants
from tests.tasks.running import endings, job_row, make_app

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.integration

Db = psycopg.Connection[Any]
REFUSED = {"NUL": "a\x00b", "high surrogate": "a\ud800b", "low surrogate": "\udfff"}
KEPT = {
    "no character": "\ufffe",
    "emoji": "😀👩‍👩‍👧",
    "right to left": "\u202eabc\u202c",
    "composed": "é",
    "decomposed": "e\u0301",
    "controls": "\x01\x1b[31m\x7f\r\n\t",
}


@pytest.fixture
def app(database_url: str, committed_db: Db) -> Iterator[tasks.App]:
    logging.disable()  # megabytes of traces help nobody
    yield make_app(database_url, committed_db)
    logging.disable(logging.NOTSET)
    committed_db.rollback()
    check_invariants(committed_db)


@pytest.fixture
def worker(app: tasks.App) -> Iterator[tasks.Worker]:
    with tasks.Worker(app, concurrency=1) as worker:
        yield worker


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("place", ["args", "kwargs", "key of kwargs", "scope", "dedup_key", "queue"])
def test_text_that_postgres_cannot_store_is_refused_at_the_call_by_field(
    app: tasks.App, committed_db: Db, text: str, place: str
) -> None:
    """Case 28: before any SQL."""

    @app.task("note")
    def note(*args: Any, **kwargs: Any) -> None:
        raise AssertionError

    special: dict[str, dict[str, Any]] = {
        "args": {"args": [text]},
        "kwargs": {"kwargs": {"deep": [{"inside": text}]}},
        "key of kwargs": {"kwargs": {"deep": {text: 1}}},
    }
    given = special.get(place, {place: text})
    with pytest.raises(PayloadError) as caught:
        note.apply_async(**given)
    assert caught.value.field.split("[")[0].split(".")[0] == place.removeprefix("key of ")
    assert committed_db.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


@pytest.mark.parametrize("text", KEPT.values(), ids=KEPT)
def test_any_other_text_arrives_as_it_was_sent(
    app: tasks.App, worker: tasks.Worker, committed_db: Db, text: str
) -> None:
    """Case 28: as argument, key, scope, progress and result."""
    seen: list[object] = []

    @app.task("note", bind=True)
    def note(self: tasks.Context, /, value: str, **more: str) -> dict[str, str]:
        seen.extend([value, more, self.scope])
        self.progress(1, text=text)
        return {text: text}

    job = note.apply_async([text], {f"k{text}": text}, scope=text, dedup_key=text)
    committed_db.commit()
    worker.once()
    assert seen == [text, {f"k{text}": text}, text]
    row = job_row(committed_db, job.id)
    assert (row["status"], row["result"], row["progress"]["text"]) == ("succeeded", {text: text}, text)
    assert row["dedup_key"] == text


def test_twins_of_one_letter_are_two_keys(app: tasks.App, committed_db: Db) -> None:
    """Case 28: keys are equal when their code points are."""
    app.task("note")(lambda: None)
    outcomes = [app["note"].apply_async(dedup_key=key).outcome for key in ("é", "e\u0301", "é")]
    assert outcomes == ["inserted", "inserted", "joined"]


BAD_ENDS: dict[str, Callable[[tasks.Context, str], object]] = {
    "result": lambda _self, text: text,
    "key of the result": lambda _self, text: {"a": [{text: 1}]},
    "progress": lambda self, text: self.progress(1, text=text),
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("place", BAD_ENDS)
def test_a_result_that_cannot_be_stored_is_a_failed_attempt_with_that_reason(
    app: tasks.App, worker: tasks.Worker, committed_db: Db, text: str, place: str
) -> None:
    """Case 28: the attempt ends, the job is never left running, and the worker goes on."""

    @app.task("ends", bind=True, max_attempts=1)
    def ends(self: tasks.Context) -> object:
        return BAD_ENDS[place](self, text)

    app.task("fine")(lambda: None)
    job = ends.delay()
    app["fine"].delay()
    committed_db.commit()
    assert [settled.outcome for settled in (*worker.once(), *worker.once())] == ["failed", "succeeded"]
    row = job_row(committed_db, job.id)
    assert (row["status"], row["last_error_code"]) == ("failed", "PAYLOAD_ERROR")
    assert "NUL" in row["last_error"] or "surrogate" in row["last_error"]


@pytest.mark.parametrize("text", [*REFUSED.values(), *KEPT.values()], ids=[*REFUSED, *KEPT])
def test_an_error_with_any_text_ends_the_attempt(
    app: tasks.App, worker: tasks.Worker, committed_db: Db, text: str
) -> None:
    """Case 28: what cannot be stored of it is escaped or left out."""

    @app.task("raises")
    def raises() -> None:
        raise ValueError(text)

    job = raises.delay()
    committed_db.commit()
    assert [settled.outcome for settled in worker.once()] == ["retry"]
    error = job_row(committed_db, job.id)["last_error"]
    assert error.startswith("ValueError")
    assert "\x00" not in error
    assert "\x1b" not in error


def deep() -> None:
    deep()


def overflow() -> None:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        deep()
    finally:
        sys.setrecursionlimit(limit)


def shout() -> None:
    raise ValueError("x" * 5_000_000)


HUGE_ENDS: dict[str, tuple[Callable[[], object], str]] = {
    "an error of 5 MB": (shout, "VALUE_ERROR"),
    "a recursion of 20,000 frames": (overflow, "RECURSION_ERROR"),
    "a result of 50 MB": (lambda: "x" * 50_000_000, "PAYLOAD_ERROR"),
}


@pytest.mark.parametrize("end", HUGE_ENDS)
def test_a_huge_end_is_cut_or_refused_and_the_attempt_ends(
    app: tasks.App, worker: tasks.Worker, committed_db: Db, end: str
) -> None:
    """Case 29."""
    call, code = HUGE_ENDS[end]
    app.task("huge", max_attempts=1)(call)
    job = app["huge"].delay()
    committed_db.commit()
    assert [settled.outcome for settled in worker.once()] == ["failed"]
    row = job_row(committed_db, job.id)
    assert row["last_error_code"] == code
    assert len(row["last_error"]) <= 2048
    assert endings(committed_db, job.id) == ["FAILED"]


def test_huge_arguments_are_refused_and_the_longest_key_is_not(app: tasks.App, committed_db: Db) -> None:
    """Case 29: 1 MB of arguments; a key of 2,048 bytes fits into its index, one more is refused by name."""
    app.task("note")(lambda text="": text)
    with pytest.raises(PayloadError, match="kwargs.text"):
        app["note"].apply_async(kwargs={"text": "x" * 1_000_000})
    key = "".join(chr(0x4E00 + n * 37 % 20_000) for n in range(682)) + "xx"
    assert len(key.encode()) == 2048
    assert app["note"].apply_async(dedup_key=key).outcome == "inserted"
    with pytest.raises(PayloadError, match="dedup_key"):
        app["note"].apply_async(dedup_key=key + "x")


def test_five_thousand_jobs_of_one_transaction_ring_once(
    app: tasks.App, committed_db: Db, connect: Callable[[], Db]
) -> None:
    """Case 29: the bell says the queue only; the lists answer all the same."""
    app.task("note")(lambda: None)
    listener = connect()
    listener.execute("LISTEN tasks")
    listener.commit()
    queue.enqueue_jobs(committed_db, [app["note"].new_job() for _ in range(4900)])
    for _ in range(100):
        app["note"].delay()
    committed_db.commit()
    heard = [*listener.notifies(timeout=10, stop_after=1), *listener.notifies(timeout=0)]
    assert [note.payload for note in heard] == ["default"]
    assert queue.stats(committed_db).counts == {"pending": 5000}
    assert len(queue.list_jobs(committed_db, task="note", limit=50)) == 50
