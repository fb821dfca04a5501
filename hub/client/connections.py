"""Connections to HTTP servers, kept open for the next request to the same server.

On the http.client of the standard library: that is all that is needed, where nothing is redirected, decoded or
repeated, and it starts in a third of the time of a larger library. ADR 0022.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from email.message import Message
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from typing import IO
from urllib.parse import SplitResult, urlsplit

from hub.client.errors import NoAnswer, Unreachable, printable

BLOCK_BYTES = 1024 * 1024
"""Read and sent at a time."""
PORTS = {"http": 80, "https": 443}


class Answer:
    """An answer whose body is still unread."""

    def __init__(self, response: HTTPResponse, host: str) -> None:
        self._response = response
        self._host = host

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self._response.status

    @property
    def headers(self) -> Message:
        """The headers; `get` does not mind their case."""
        return self._response.headers

    def stream(self, size: int) -> Iterator[bytes]:
        """Read the body in pieces of at most `size` bytes. Raises NoAnswer when it does not come whole."""
        while True:
            with _explained(self._host):
                piece = self._response.read(size)
                if not piece and self._response.length:
                    raise IncompleteRead(b"", self._response.length)
            if not piece:
                return
            yield piece


class Connections:
    """Connections by server, for several threads; each has one to itself while it asks."""

    def __init__(self, connect_seconds: float) -> None:
        """Open nothing yet."""
        self._connect_seconds = connect_seconds
        self._lock = threading.Lock()
        self._idle: dict[tuple[str, str, int], list[HTTPConnection]] = defaultdict(list)
        self._context: ssl.SSLContext | None = None

    def close(self) -> None:
        """Close those that nobody uses."""
        with self._lock:
            for connections in self._idle.values():
                for connection in connections:
                    connection.close()
            self._idle.clear()

    @contextmanager
    def ask(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | IO[bytes] | None, read_seconds: float
    ) -> Iterator[Answer]:
        """Send a request to an http(s) URL of printable ASCII, and give its answer.

        The connection is used again if the answer was read to its end, and the server keeps it. Raises NoAnswer when
        there is no answer, Unreachable when another try is of no use.
        """
        parts = urlsplit(url)
        server = (parts.scheme, parts.hostname or "", parts.port or PORTS[parts.scheme])
        connection = self._take(server)
        reusable = False
        try:
            response = _send(connection, method, parts, headers, body, read_seconds)
            try:
                yield Answer(response, server[1])
                if response.length == 0:
                    response.read()  # nothing is to come; this tells it so
                reusable = response.isclosed() and connection.sock is not None
            finally:
                response.close()
        finally:
            if reusable:
                with self._lock:
                    self._idle[server].append(connection)
            else:
                connection.close()

    def _take(self, server: tuple[str, str, int]) -> HTTPConnection:
        while True:
            with self._lock:
                connection = self._idle[server].pop() if self._idle[server] else None
            if connection is None:
                return self._open(*server)
            if not _has_ended(connection):
                return connection
            connection.close()

    def _open(self, scheme: str, host: str, port: int) -> HTTPConnection:
        if scheme == "https":
            with self._lock:
                self._context = self._context or ssl.create_default_context()
            connection: HTTPConnection = HTTPSConnection(
                host, port, timeout=self._connect_seconds, blocksize=BLOCK_BYTES, context=self._context
            )
        else:
            connection = HTTPConnection(host, port, timeout=self._connect_seconds, blocksize=BLOCK_BYTES)
        shown = printable(host)
        try:
            connection.connect()
        except ssl.SSLError:
            raise Unreachable(
                f"No safe connection to {shown}: its certificate or TLS version is not accepted."
            ) from None
        except (socket.gaierror, UnicodeError):
            raise NoAnswer(f"No answer from {shown}: the name is not known; check the address.") from None
        except TimeoutError:
            raise NoAnswer(f"No answer from {shown} in time; try again later.") from None
        except OSError:
            raise NoAnswer(f"No answer from {shown}: it accepts no connection; is the hub running there?") from None
        return connection


def _send(
    connection: HTTPConnection,
    method: str,
    parts: SplitResult,
    headers: Mapping[str, str],
    body: bytes | IO[bytes] | None,
    read_seconds: float,
) -> HTTPResponse:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    with _explained(connection.host):
        connection.sock.settimeout(read_seconds)
        # A server may refuse a body before it has come whole: what it says is still to be read.
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.request(method, target, body, dict(headers))
        return connection.getresponse()


@contextmanager
def _explained(host: str) -> Iterator[None]:
    try:
        yield
    except TimeoutError:
        raise NoAnswer(f"No answer from {printable(host)} in time; try again later.") from None
    except (OSError, HTTPException):
        raise NoAnswer(f"The connection to {printable(host)} broke; try again.") from None


def _has_ended(connection: HTTPConnection) -> bool:
    """Whether the server has closed a connection that waits: there is something to read, its end."""
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))
