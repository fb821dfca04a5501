"""The application that is run under fire. Imported by the worker processes, and by the producers for its tasks."""

from __future__ import annotations

import os
import random
import threading

import sqlalchemy as sa
from sqlalchemy.orm import Session

import tasks
from storage import FaultyStore, MemoryStore

SEED = int(os.environ.get("CHAOS_SEED", "0"))
"""Of this process; set by whoever starts it."""
FAULTS = 0.1
"""Share of the store's operations that fail."""
ATTEMPTS = 200
"""More than any job loses to kills and faults: a job that ends failed is an error of the run."""
AGAIN = tasks.Fixed(0.2)

app = tasks.App("chaos")
store = FaultyStore(MemoryStore(), seed=SEED, rate=FAULTS)
chance = random.Random(SEED)
never = threading.Event()


def configure(database_url: str) -> None:
    engine = sa.create_engine(
        sa.make_url(database_url).set(drivername="postgresql+psycopg"),
        pool_pre_ping=True,
        connect_args={"connect_timeout": 5},
    )
    app.configure(database_url=database_url, session=lambda: Session(engine))


if url := os.environ.get("DATABASE_URL"):
    configure(url)


@app.task("effect", bind=True, transactional=True, dedup=tasks.Dedup(), lease=2, max_attempts=ATTEMPTS, retry=AGAIN)
def effect(self: tasks.Context) -> int:
    """Carry the newest version of the scope over: what the last push of a key wrote must arrive here."""
    version: int = self.session.execute(
        sa.text("SELECT version FROM chaos.pushed WHERE scope = :scope"), {"scope": self.scope}
    ).scalar_one()
    self.session.execute(
        sa.text("INSERT INTO chaos.seen (scope, version, job_id) VALUES (:scope, :version, :job_id)"),
        {"scope": self.scope, "version": version, "job_id": self.request.id},
    )
    return version


@app.task("upload", bind=True, lease=2, max_attempts=ATTEMPTS, retry=AGAIN)
def upload(self: tasks.Context, text: str) -> int:
    """Write to the faulty store and read back."""
    key = f"{self.request.id}/{self.request.attempt}"
    store.put(key, text.encode())
    with store.get(key) as body:
        content = b"".join(body)
    store.delete(key)
    if content != text.encode():
        raise tasks.Quarantine("STORE_LIES", key)
    return len(content)


@app.task("long", bind=True, lease=1, max_attempts=ATTEMPTS, retry=AGAIN)
def long(self: tasks.Context) -> str:
    """Run for up to two seconds: long enough to be killed in, longer than the lease."""
    never.wait(chance.uniform(0.1, 2.0))
    self.progress(1, 1)
    return "done"


@app.task("after", gate=tasks.After("effect"), lease=2, max_attempts=ATTEMPTS, retry=AGAIN)
def after() -> None:
    """Wait behind every effect of the scope."""


@app.task("single", lease=2, max_attempts=ATTEMPTS, retry=AGAIN)
def single() -> None:
    """Run alone in its scope: enqueued with a limit of one."""
    never.wait(0.02)
