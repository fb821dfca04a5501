"""Each migration of the hub can be taken back, with rows in the tables, and done again."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest
from alembic import command

from tests.tasks.test_migration import config

pytestmark = pytest.mark.integration

ROWS = """
INSERT INTO hub.principal (principal_id, name) VALUES (gen_random_uuid(), 'alice');
INSERT INTO hub.token (token_id, principal_id, token_hash)
    SELECT gen_random_uuid(), principal_id, sha256('x') FROM hub.principal;
INSERT INTO hub.repository (repository_id, owner_id, slug, visibility)
    SELECT gen_random_uuid(), principal_id, 'data', 'public' FROM hub.principal;
"""


def test_tables_with_rows_go_up_and_down(new_database: Callable[[], str]) -> None:
    url = new_database()
    command.upgrade(config(url), "0002")
    with psycopg.connect(url) as conn:
        conn.execute(ROWS)
    command.upgrade(config(url), "hub@head")
    with psycopg.connect(url) as conn:
        assert conn.execute("SELECT scope, used_at FROM hub.token").fetchall() == [("admin", None)]
    command.downgrade(config(url), "0002")
    command.upgrade(config(url), "hub@head")
    with psycopg.connect(url) as conn:
        assert conn.execute("SELECT slug FROM hub.repository").fetchall() == [("data",)]
