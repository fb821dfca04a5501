"""Plans that are made once and kept: they must be good for large tables although the tables were empty then."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tasks.db import statement, uuid_array
from tasks.pool import Pool
from tests.tasks.rows import PLANNER

pytestmark = pytest.mark.integration

IDS = uuid_array([uuid4()] * 100)
FAILURES = json.dumps([{"job_id": str(uuid4()), "token": str(uuid4()), "retryable": False, "delays": []}] * 100)
STATEMENTS: dict[str, dict[str, Any]] = {
    "claim_jobs": {
        "worker": "w",
        "tasks": ["gc"],
        "queues": ["default"],
        "limit": 100,
        "now": None,
        "admitted": [],
        **PLANNER,
    },
    "promote_due": {"limit": 1000, "claims": 100, "now": None},
    "check_gates": {"limit": 8, "claims": 1, "keys": []},
    "finish_jobs": {"job_ids": IDS, "tokens": IDS, "results": [None] * 100, "now": None},
    "fail_jobs": {"failures": FAILURES, "now": None},
    "unpark_jobs": {"ended": IDS, "limit": 1000},
    "unpark_rest": {"limit": 200, "blockers": 10},
    "extend_leases": {"job_ids": IDS, "tokens": IDS, "now": None},
}
WALKS = ("Seq Scan on job", "Seq Scan on attempt", "Merge Join", "Hash Join")


@pytest.fixture
def conn(database_url: str, committed_db: psycopg.Connection[Any]) -> Iterator[psycopg.Connection[Any]]:
    """A connection of a worker, to tables without a row."""
    committed_db.rollback()
    pool = Pool(database_url, 1, "plans")
    with pool.transaction() as conn:
        yield conn
        conn.rollback()
    pool.close()


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_workers_statement_walks_over_no_table(conn: psycopg.Connection[Any], name: str) -> None:
    plan = "\n".join(row[0] for row in conn.execute(b"EXPLAIN " + statement(name), STATEMENTS[name]))
    assert [walk for walk in WALKS if walk in plan] == []


def test_a_worker_prepares_a_statement_at_its_first_use_and_plans_it_once(conn: psycopg.Connection[Any]) -> None:
    for _ in range(7):
        conn.execute(statement("unpark_jobs"), STATEMENTS["unpark_jobs"])
    (plans,) = conn.execute(
        "SELECT (generic_plans, custom_plans) FROM pg_prepared_statements WHERE statement LIKE '-- %parked_on%'"
    ).fetchall()
    assert plans[0] == ("7", "0")
