"""The machine as data: its files, its table's CHECKs, its page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tasks import queue, states
from tasks.states import MOVES, TERMINAL, Ending, Move, Status
from tests.tasks.rows import at, enqueue, enqueue_and_claim, hold_end

if TYPE_CHECKING:
    from uuid import UUID

ROOT = Path(__file__).parent.parent.parent
SQL = ROOT / "tasks" / "sql"
PAGE = ROOT / "docs" / "reference" / "queue.md"


@pytest.mark.parametrize("move", MOVES, ids=lambda move: move.id)
def test_every_move_has_a_statement_that_names_its_states(move: Move) -> None:
    text = (SQL / f"{move.statement}.sql").read_text()
    number = re.sub(r"[a-z]$", "", move.id)
    assert re.search(rf"^-- .*\b{number}(?!\d)", text)
    if move.source is not None:
        assert f"status = '{move.source}'" in text
    assert f"'{move.target}'" in text
    if move.ending is not None:
        assert f"'{move.ending}'" in text


def test_ids_of_moves_are_unique() -> None:
    assert len({move.id for move in MOVES}) == len(MOVES)


def test_only_a_person_moves_a_job_from_its_end_and_never_one_that_succeeded() -> None:
    leaving = [move for move in MOVES if move.source in TERMINAL]
    assert {(move.who, move.statement, move.target) for move in leaving} == {("person", "retry_job", Status.PENDING)}
    assert {move.source for move in leaving} == TERMINAL - {Status.SUCCEEDED}


def test_every_move_out_of_running_closes_the_attempt() -> None:
    assert all((move.ending is not None) == (move.source is Status.RUNNING) for move in MOVES)


def test_every_state_can_be_reached() -> None:
    assert {move.target for move in MOVES} == set(Status)


@pytest.mark.parametrize(("name", "made"), [("diagram", states.diagram), ("table", states.table)])
def test_the_page_shows_the_machine_as_it_is(name: str, made: Any) -> None:
    text = PAGE.read_text()
    shown = text.partition(f"<!-- {name}: made by tasks.states -->\n")[2].partition(f"\n<!-- end of {name} -->")[0]
    assert shown.removeprefix("```mermaid\n").removesuffix("\n```") == made()


def test_the_table_knows_the_same_states_and_endings(db: psycopg.Connection[Any]) -> None:
    rows = db.execute(
        "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE conname IN ('job_status_known', 'attempt_result_known')"
    ).fetchall()
    known = {name: set(re.findall(r"'(\w+)'", text)) for name, text in rows}
    assert known == {"job_status_known": set(Status), "attempt_result_known": set(Ending)}


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ("status = 'done'", "job_status_known"),
        ("status = 'running'", "job_claim_iff_running"),
        ("claim_token = gen_random_uuid()", "job_claim_iff_running"),
        ("status = 'succeeded'", "job_finished_iff_terminal"),
        ("finished_at = now()", "job_finished_iff_terminal"),
        ("attempt_count = 6, claim_count = 6", "job_budget"),
        ("attempt_count = -1", "job_budget"),
        ("attempts_max = 0", "job_budget"),
        ("attempt_count = 1", "job_claims_cover_attempts"),
        ("postpone_count = 101", "job_postpones"),
        ("lease_seconds = 0", "job_lease_positive"),
        ("result = '1'", "job_result_only_on_success"),
        ("last_error = 'x'", "job_error_whole"),
        ("dedup_key = 'k'", "job_dedup_whole"),
        ("dedup_key = 'k', dedup_mode = 'sometimes'", "job_dedup_mode_known"),
        ("coalesced = 1", "job_coalesced"),
        ("coalesced_at = now()", "job_coalesced"),
        ("cancel_reason = 'why not'", "job_reason_iff_cancelled"),
        ("status = 'cancelled', finished_at = now()", "job_reason_iff_cancelled"),
        ("superseded_by = gen_random_uuid()", "job_superseded_names_its_heir"),
        (
            "status = 'cancelled', finished_at = now(), cancel_reason = 'superseded'",
            "job_superseded_names_its_heir",
        ),
    ],
)
def test_the_table_refuses_a_nonsensical_job(db: psycopg.Connection[Any], change: str, constraint: str) -> None:
    job_id = enqueue(db).job_id
    _refused(db, f"UPDATE tasks.job SET {change} WHERE job_id = %s", job_id, constraint)


@pytest.mark.parametrize("column", ["claim_token", "claimed_by", "claimed_at", "heartbeat_at", "lease_expires_at"])
def test_a_running_job_has_all_of_its_claim(db: psycopg.Connection[Any], column: str) -> None:
    job_id = enqueue_and_claim(db).job_id
    _refused(db, f"UPDATE tasks.job SET {column} = NULL WHERE job_id = %s", job_id, "job_claim_iff_running")


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ("result = 'LOST'", "attempt_result_known"),
        ("ended_at = claimed_at - interval '1 s'", "attempt_ended_after_claimed"),
        ("error_code = 'X', error = 'x'", "attempt_error_iff_failed"),
        ("result = 'ABANDONED', error_code = 'X', error = 'x'", "attempt_error_iff_failed"),
        ("result = 'FAILED'", "attempt_error_iff_failed"),
        ("result = 'FAILED', error_code = 'X'", "attempt_error_whole"),
        ("number = 0", "attempt_number_from_one"),
    ],
)
def test_the_table_refuses_a_nonsensical_attempt(db: psycopg.Connection[Any], change: str, constraint: str) -> None:
    held = enqueue_and_claim(db)
    queue.finish_job(db, held.ref, now=at(2))
    _refused(db, f"UPDATE tasks.ended_attempt SET {change} WHERE job_id = %s", held.job_id, constraint)


@pytest.mark.parametrize("column", ["claim_token", "job_id", "number", "worker", "claimed_at", "ended_at", "result"])
def test_an_attempt_that_has_ended_says_whose_it_was_and_how_it_ended(db: psycopg.Connection[Any], column: str) -> None:
    queue.finish_job(db, enqueue_and_claim(db).ref, now=at(2))
    with pytest.raises(psycopg.errors.NotNullViolation):
        db.execute(f"UPDATE tasks.ended_attempt SET {column} = NULL".encode())


def test_a_job_has_each_attempt_once(db: psycopg.Connection[Any]) -> None:
    held = enqueue_and_claim(db)
    hold_end(db, held.job_id)
    with pytest.raises(psycopg.errors.UniqueViolation) as caught:
        queue.finish_job(db, held.ref, now=at(2))
    assert caught.value.diag.constraint_name == "attempt_number_once"


def _refused(db: psycopg.Connection[Any], statement: str, job_id: UUID, constraint: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation) as caught:
        db.execute(statement.encode(), (job_id,))
    assert caught.value.diag.constraint_name == constraint
