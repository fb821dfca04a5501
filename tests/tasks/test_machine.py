"""The machine for users runs random histories of their tasks, and finds what a crash brings to light."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

import tasks
from tasks.testing import machine
from tests.tasks.running import make_app

pytestmark = pytest.mark.integration

Connection = psycopg.Connection[Any]
FEW = settings(max_examples=10, stateful_step_count=8, print_blob=False)
# Until the planted fault is found, by the same histories in every run.
UNSHRUNK = settings(FEW, max_examples=1000, stateful_step_count=20, derandomize=True, phases=[Phase.generate])


@pytest.fixture
def url(database_url: str, committed_db: Connection) -> Iterator[str]:
    """A database with a table of the application's own."""
    committed_db.execute("CREATE TABLE public.charge (number int, amount int)")
    committed_db.commit()
    yield database_url
    committed_db.rollback()
    committed_db.execute("DROP TABLE public.charge")
    committed_db.commit()


@pytest.fixture
def shop(url: str) -> tasks.App:
    app = make_app(url)
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"), poolclass=NullPool)
    app.configure(session=lambda: Session(engine))

    @app.task("charge.twice", retry=tasks.Fixed(30))
    def charge_twice(number: int) -> None:
        """Charges again whenever it is run again."""
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute("INSERT INTO public.charge VALUES (%s, 1)", (number,))

    @app.task("charge.once", bind=True, transactional=True, retry=tasks.Fixed(30))
    def charge_once(self: tasks.Context, number: int) -> None:
        """What it writes is committed with its success."""
        self.session.execute(text("INSERT INTO public.charge VALUES (:number, 1)"), {"number": number})
        if number == 3 and self.request.attempt == 1:
            raise ValueError

    app.task("receipt")(lambda number: number)
    return app


def run(app: tasks.App, url: str, calls: Any, *, like: settings = FEW, **checks: Any) -> None:
    made = machine(app, lambda: psycopg.connect(url), calls, begin=no_charges, **checks)
    run_state_machine_as_test(made, settings=like)


def no_charges(conn: Connection) -> None:
    conn.execute("DELETE FROM public.charge")


def charged_once(conn: Connection) -> None:
    query = "SELECT number, count(*) FROM public.charge GROUP BY number HAVING count(*) > 1"
    assert conn.execute(query).fetchall() == []


def numbered(task: Any, **options: Any) -> Any:
    """Calls of a task for orders of which each is enqueued once."""
    return st.integers(1, 5).map(lambda number: task.s(number).set(dedup_key=f"order-{number}", mode="once", **options))


def test_task_that_charges_again_when_it_runs_again_is_found(shop: tasks.App, url: str) -> None:
    with pytest.raises(AssertionError) as found:
        run(shop, url, numbered(shop["charge.twice"]), like=UNSHRUNK, always=charged_once)
    notes = "\n".join(found.value.__notes__)
    assert "state.crash(worked=True)" in notes
    assert "charge.twice(" in notes


def test_task_that_commits_with_its_success_is_proved_right(shop: tasks.App, url: str) -> None:
    histories = 0

    def all_ended(conn: Connection) -> None:
        nonlocal histories
        histories += 1
        charged_once(conn)

    run(shop, url, numbered(shop["charge.once"]), always=charged_once, ended=all_ended)
    assert histories >= FEW.max_examples
    with closing(psycopg.connect(url)) as conn:
        assert conn.execute("SELECT count(*) FROM tasks.job").fetchone() == (0,)


def test_chains_groups_and_chords_come_to_an_end(shop: tasks.App, url: str) -> None:
    receipt = shop["receipt"]
    calls = st.sampled_from([
        tasks.chain(receipt.s(1), receipt.s()),
        tasks.chord([receipt.s(1), receipt.s(2)], receipt.s()),
        receipt.s(3).set(countdown=60, expires=600),
    ])  # fmt: skip
    run(shop, url, calls)


def test_broken_promise_of_the_queue_is_found(shop: tasks.App, url: str) -> None:
    def damage(conn: Connection) -> None:
        conn.execute("UPDATE tasks.job SET claim_count = claim_count + 1")
        conn.commit()

    with pytest.raises(AssertionError, match="numbered 1 to claim_count"):
        run(shop, url, st.just(shop["receipt"].s(1)), like=UNSHRUNK, always=damage)


def test_job_that_waits_for_ever_is_found_with_the_reason(shop: tasks.App, url: str) -> None:
    calls = st.just(shop["receipt"].s(1).set(queue="elsewhere"))
    with pytest.raises(AssertionError, match=r"of receipt does not come to an end: .*elsewhere"):
        run(shop, url, calls, like=UNSHRUNK)


def test_database_with_jobs_is_refused(shop: tasks.App, url: str, connect: Callable[[], Connection]) -> None:
    conn = connect()
    shop["receipt"].apply_async((1,), session=conn)
    conn.commit()
    with pytest.raises(ValueError, match="one of its own"):
        run(shop, url, st.just(shop["receipt"].s(1)))
    assert conn.execute("SELECT count(*) FROM tasks.job").fetchone() == (1,)
