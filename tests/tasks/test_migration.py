"""The schema `tasks` stands alone: an application may install the queue without the hub."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from alembic import command
from alembic.config import Config

from tasks import queue
from tasks.errors import NotMigrated
from tests.tasks.rows import claim_one, enqueue, new

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent.parent


def config(url: str | None) -> Config:
    made = Config(ROOT / "setup.cfg")
    made.set_main_option("script_location", str(ROOT / "migrations"))
    made.attributes["database_url"] = url
    return made


def schemas(url: str) -> set[str]:
    with psycopg.connect(url) as conn:
        rows = conn.execute("SELECT nspname FROM pg_namespace WHERE nspname IN ('tasks', 'hub')").fetchall()
    return {name for (name,) in rows}


def test_the_queue_is_installed_alone_works_and_goes_again(new_database: Callable[[], str]) -> None:
    url = new_database()
    command.upgrade(config(url), "tasks@head")
    assert schemas(url) == {"tasks"}
    with psycopg.connect(url) as conn:
        job_id = enqueue(conn).job_id
        assert claim_one(conn).job_id == job_id
    command.downgrade(config(url), "tasks@base")
    assert schemas(url) == set()


def test_an_enqueue_without_the_tables_says_which_command_makes_them(new_database: Callable[[], str]) -> None:
    url = new_database()
    for many in (1, 3):
        with (
            psycopg.connect(url) as conn,
            pytest.raises(NotMigrated, match="no job tables: run .* tasks@head"),
        ):
            queue.enqueue_jobs(conn, [new(dedup_key=None if many == 1 else f"{n}") for n in range(many)])
    with psycopg.connect(url) as conn, pytest.raises(NotMigrated, match="no job tables"):
        enqueue(conn, dedup_key="k", dedup_mode="once")
    command.upgrade(config(url), "tasks@head")
    with psycopg.connect(url) as conn:
        conn.execute("ALTER TABLE tasks.job DROP COLUMN lane CASCADE")
        with pytest.raises(NotMigrated, match='tables of another version .column "lane"'):
            enqueue(conn)


def test_without_a_url_nothing_is_migrated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    with pytest.raises(RuntimeError, match="DATABASE_URL is not set"):
        command.upgrade(config(None), "heads")
