"""The raw loops beside which the queue is measured, each on one psycopg connection, without a worker.

`own_drain`: our own claim and finish statements in batches of the worker's size, on a connection with the worker's
planner settings.
`bare_drain`: claim 100 and delete 100 on a table with nothing but an id, a number and a payload: no tokens, no history,
no leases. Both are written as one writes them with psycopg: lists as parameters, a statement a step.

`own_insert`: our own enqueue statement, a thousand rows of one kind, its parameters put together by hand: no check of
any request, no results. `insert_many`: as many rows into the bare table, which is given two columns and has two
indexes; a job is given 20 and enters three. Ids and payloads are the same in both.
"""

from __future__ import annotations

import threading
import time
from itertools import islice

import psycopg

from bench.database import Connection
from tasks import flow, queue
from tasks.db import statement, uuid_array
from tasks.ids import new_job_id, new_job_ids
from tasks.job import NewJob
from tasks.pool import PLANNER
from tasks.request import kind_params

BATCH = 100


def own_drain(conn: Connection) -> int:
    """Claim and finish until nothing is left. Returns the number of jobs."""
    jobs = 0
    while claims := queue.claim_jobs(conn, worker="raw", tasks=["noop"], queues=["default"], limit=flow.BATCH):
        conn.commit()
        queue.finish_jobs(conn, [(claim.ref, None) for claim in claims])
        conn.commit()
        jobs += len(claims)
    conn.commit()
    return jobs


def bare_drain(conn: Connection) -> int:
    """Claim and delete until nothing is left. Returns the number of rows."""
    jobs = 0
    while rows := conn.execute(
        "SELECT id, payload FROM bare ORDER BY seq LIMIT %s FOR UPDATE SKIP LOCKED", (BATCH,)
    ).fetchall():
        conn.execute("DELETE FROM bare WHERE id = ANY (%s)", ([row[0] for row in rows],))
        conn.commit()
        jobs += len(rows)
    conn.commit()
    return jobs


def _payload(number: int) -> str:
    return f'{{"args":[{number}],"kwargs":{{}}}}'


def insert_one(conn: Connection, number: int) -> None:
    """One row, one commit."""
    conn.execute("INSERT INTO bare (id, payload) VALUES (%s, %s)", (new_job_id(), _payload(number)))
    conn.commit()


def insert_many(conn: Connection, numbers: range) -> None:
    """Many rows in one statement; the caller commits."""
    conn.execute(
        "INSERT INTO bare (id, payload) SELECT i, p::jsonb FROM unnest(%s::uuid[], %s::text[]) AS g (i, p)",
        ([*islice(new_job_ids(), len(numbers))], [_payload(number) for number in numbers]),
    )


def own_insert(conn: Connection, numbers: range) -> None:
    """Many jobs in one statement; the caller commits."""
    params = {
        **kind_params(NewJob("noop", {"args": [], "kwargs": {}})),
        "job_ids": uuid_array(islice(new_job_ids(), len(numbers))),
        "payloads": "[" + ",".join([_payload(number) for number in numbers]) + "]",
        "now": None,
    }
    conn.execute(statement("enqueue_alike"), params)


class BareListener(threading.Thread):
    """NOTIFY, claim, start: what a pickup costs at least. `started` holds the monotonic ns of each start."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self.listening = threading.Event()
        self.ran = threading.Semaphore(0)
        self.started: list[int] = []
        self.stopping = False

    def run(self) -> None:
        """Listen on one connection, claim on another."""
        with (
            psycopg.connect(self._url, autocommit=True) as ears,
            psycopg.connect(self._url, options=PLANNER) as conn,
        ):
            ears.execute("LISTEN tasks")
            self.listening.set()
            while not self.stopping:
                for _ in ears.notifies(timeout=0.5, stop_after=1):
                    claims = queue.claim_jobs(conn, worker="raw", tasks=["started"], queues=["default"], limit=1)
                    conn.commit()
                    self.started.append(time.monotonic_ns())
                    queue.finish_jobs(conn, [(claim.ref, None) for claim in claims])
                    conn.commit()
                    self.ran.release()
