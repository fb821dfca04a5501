"""The pool of the web process: connections that died while they lay there are replaced."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import psycopg
import pytest
from sqlalchemy import Engine, create_engine, text

from hub.models import ping
from hub.models.base import driver_url

pytestmark = pytest.mark.integration


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """An engine whose pool pings."""
    engine = create_engine(driver_url(database_url))
    ping.ping_idle(engine)
    yield engine
    engine.dispose()


def use(engine: Engine) -> int:
    """The backend that answered."""
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())


def test_connection_that_died_while_unused_is_replaced(engine: Engine, db: psycopg.Connection[object]) -> None:
    first = use(engine)
    db.execute("SELECT pg_terminate_backend(%s, 5000)", [first])
    with mock.patch.object(ping, "IDLE_SECONDS", 0):
        assert use(engine) != first


def test_connection_that_was_just_used_is_not_asked(engine: Engine) -> None:
    first = use(engine)
    with mock.patch.object(engine.dialect, "do_ping") as asked:
        assert use(engine) == first
        assert not asked.called
        with mock.patch.object(ping, "IDLE_SECONDS", 0):
            assert use(engine) == first
        assert asked.called
