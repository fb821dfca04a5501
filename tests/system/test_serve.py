"""The web process: slow clients hold no thread, and a statement can't run for ever."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from hub.accounts import create_principal, create_token
from hub.models.base import driver_url
from tests.system.serving import served
from tests.system.world import WAIT_SECONDS

pytestmark = [pytest.mark.integration, pytest.mark.system]

OK = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@pytest.fixture
def port(database_url: str, committed_db: psycopg.Connection[Any]) -> Iterator[int]:
    """A web process with one thread and short limits."""
    limits = ("--head-timeout", "1", "--idle-timeout", "1", "--statement-timeout", "1")
    with served(database_url, "--threads", "1", *limits) as number:
        yield number


def say(port: int, data: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS)
    connection.sendall(data)
    return connection


def answer(connection: socket.socket) -> bytes:
    """All that comes until the connection ends."""
    with closing(connection):
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_head_that_does_not_come_to_its_end_holds_no_thread(port: int) -> None:
    slow = say(port, b"GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: ")
    assert b"200 OK" in answer(say(port, OK))
    assert answer(slow) == b""


def test_head_that_trickles_ends_as_well(port: int) -> None:
    head = b"GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: "
    with closing(say(port, head)) as slow, closing(say(port, OK)) as waiting:
        waiting.settimeout(0.2)
        got = b""
        while not got:
            try:
                got = waiting.recv(65536)
            except TimeoutError:
                with suppress(ConnectionError):  # it may have ended in between
                    slow.sendall(b"x")
    assert b"200 OK" in got


def test_body_that_stops_coming_holds_no_thread(port: int) -> None:
    slow = say(port, b"POST /api/repositories HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    assert b"200 OK" in answer(say(port, OK))
    assert b"401" in answer(slow)


@pytest.fixture
def token(database_url: str, committed_db: psycopg.Connection[Any]) -> str:
    """A token of the user alice."""
    engine = create_engine(driver_url(database_url))
    try:
        with Session(engine) as session, session.begin():
            create_principal(session, "alice")
            return create_token(session, "alice")[1]
    finally:
        engine.dispose()


LENGTH = (b"Content-Length: 60000", b" ")
CHUNKED = (b"Transfer-Encoding: chunked", b"1\r\n \r\n")


@pytest.mark.parametrize(("framing", "more"), [LENGTH, CHUNKED])
def test_body_that_trickles_is_answered_and_holds_no_thread(port: int, token: str, framing: bytes, more: bytes) -> None:
    head = b"POST /api/repositories HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s\r\n\r\n"
    slow = say(port, head % (token.encode(), framing))
    with closing(say(port, OK)) as waiting:
        waiting.settimeout(0.2)
        got = b""
        while not got:
            try:
                got = waiting.recv(65536)
            except TimeoutError:
                with suppress(ConnectionError):  # it may have ended in between
                    slow.sendall(more)
    assert b"200 OK" in got
    slow.settimeout(WAIT_SECONDS)
    said = answer(slow)
    assert b" 408 " in said.splitlines()[0]
    assert b"The body came too slowly" in said


def test_body_that_pauses_is_told_so(port: int, token: str) -> None:
    head = b"POST /api/repositories HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 9\r\n\r\n{"
    said = answer(say(port, head % token.encode()))
    assert b" 408 " in said.splitlines()[0]
    assert b"TOO_SLOW" in said


def test_statement_that_waits_too_long_is_an_answer(port: int, committed_db: psycopg.Connection[Any]) -> None:
    committed_db.execute("LOCK TABLE hub.repository IN ACCESS EXCLUSIVE MODE")
    said = answer(say(port, b"GET /alice/data/refs HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
    assert b" 503 " in said.splitlines()[0]
    assert b"Retry-After" in said
