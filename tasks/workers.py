"""The register of workers: who is there and what they can run. For display only, never for ownership."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from psycopg.rows import class_row

from tasks.db import Conn, cursor, statement
from tasks.job import WorkerInfo, WorkerRow
from tasks.payload import check_instant

if TYPE_CHECKING:
    from datetime import datetime

SILENT_SECONDS = 86400.0
"""After so long a worker that died without a word is dropped from the register."""


def register_worker(conn: Conn, worker: WorkerInfo, *, now: datetime | None = None) -> None:
    """Say that this worker is there; repeat it so that it counts as live."""
    row = asdict(worker)
    params = {**row, "queues": list(worker.queues), "tasks": list(worker.tasks), "now": check_instant("now", now)}
    driver = cursor(conn, class_row(WorkerRow))
    with driver as cur:
        cur.execute(statement("register_worker"), params)


def forget_worker(conn: Conn, worker_id: str) -> None:
    """Say goodbye; an unknown id is fine."""
    with cursor(conn, class_row(WorkerRow)) as cur:
        cur.execute(statement("forget_worker"), {"worker_id": worker_id})


def forget_silent_workers(conn: Conn, *, now: datetime | None = None) -> int:
    """Drop the workers that have not been seen for a day; returns how many."""
    with cursor(conn, class_row(WorkerRow)) as cur:
        params = {"silent": SILENT_SECONDS, "now": check_instant("now", now)}
        return cur.execute(statement("forget_silent_workers"), params).rowcount


def list_workers(conn: Conn) -> list[WorkerRow]:
    """Read the register, oldest first."""
    with cursor(conn, class_row(WorkerRow)) as cur:
        return cur.execute(statement("list_workers")).fetchall()
