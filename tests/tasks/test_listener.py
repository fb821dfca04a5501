from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tasks import listener as listening
from tasks.listener import Listener
from tests.system.gateway import Gateway
from tests.tasks.running import WAIT_SECONDS

pytestmark = pytest.mark.integration

Connection = psycopg.Connection[Any]


class Warned(logging.Handler):
    """Collects the listener's warnings; `event` is set by the first."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.event = threading.Event()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())
        self.event.set()


@pytest.fixture
def warned() -> Iterator[Warned]:
    handler = Warned()
    logging.getLogger(listening.__name__).addHandler(handler)
    yield handler
    logging.getLogger(listening.__name__).removeHandler(handler)


@pytest.fixture
def rung() -> threading.Semaphore:
    return threading.Semaphore(0)


@pytest.fixture
def gateway(database_url: str) -> Iterator[Gateway]:
    place = conninfo_to_dict(database_url)
    with Gateway(str(place["host"]), int(str(place["port"]))) as gateway:
        yield gateway


@pytest.fixture
def listener(
    database_url: str, gateway: Gateway, rung: threading.Semaphore, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Listener]:
    for name in ("LOOK_SECONDS", "PROBE_SECONDS"):
        monkeypatch.setattr(listening, name, 0.05)
    monkeypatch.setattr(listening, "ANSWER_SECONDS", 0.3)
    url = make_conninfo(database_url, host="127.0.0.1", port=gateway.port)
    listener = Listener(url, ["default"], rung.release)
    yield listener
    listener.stop()


def test_listener_that_hears_itself_stays_connected(
    listener: Listener, rung: threading.Semaphore, committed_db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = threading.Semaphore(0)
    execute = listening._execute

    def execute_and_tell(*arguments: Any) -> None:
        execute(*arguments)
        asked.release()

    monkeypatch.setattr(listening, "_execute", execute_and_tell)
    listener.start()
    for _ in range(4):
        assert asked.acquire(timeout=WAIT_SECONDS)
    assert rung.acquire(timeout=WAIT_SECONDS), "once after the connect"
    committed_db.execute("SELECT pg_notify('tasks', 'default')")
    committed_db.commit()
    assert rung.acquire(timeout=WAIT_SECONDS)
    assert not rung.acquire(blocking=False), "its own notifications ring nobody"


def test_server_that_falls_silent_is_noticed_and_the_bell_rings_after_the_reconnect(
    listener: Listener, gateway: Gateway, rung: threading.Semaphore, warned: Warned
) -> None:
    listener.start()
    assert rung.acquire(timeout=WAIT_SECONDS)
    gateway.shut()
    assert warned.event.wait(WAIT_SECONDS)
    gateway.open()
    assert rung.acquire(timeout=WAIT_SECONDS)


def test_notifications_that_do_not_arrive_are_noticed(
    listener: Listener, rung: threading.Semaphore, warned: Warned, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a pooler, where the LISTEN is on one server connection and the next statement on another."""
    monkeypatch.setattr(listening, "ASK", b"SELECT %s::text")
    listener.start()
    assert warned.event.wait(WAIT_SECONDS)
    assert "--no-listen" in warned.said[0]
    for _ in range(2):
        assert rung.acquire(timeout=WAIT_SECONDS)
