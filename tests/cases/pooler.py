"""A pooler in transaction mode: each transaction of a client is on another connection to the server."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any

import psycopg

PARAMETERS = ("server_version", "client_encoding", "DateStyle", "TimeZone", "integer_datetimes")
NO_ENCRYPTION = (80877103, 80877104)
"""Codes of the requests for TLS and GSS."""
IDLE = b"I"


def read(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = source.recv(size - len(data))
        if not chunk:
            raise ConnectionResetError
        data += chunk
    return data


def read_message(source: socket.socket) -> tuple[bytes, bytes]:
    """One message of the protocol: its type, and the whole of it."""
    head = read(source, 5)
    (size,) = struct.unpack("!I", head[1:])
    return head[:1], head + read(source, size - 4)


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


class Pooler:
    """Listens on a loopback port. Its connections to the server take turns, so that no two transactions share one."""

    def __init__(self, database_url: str, size: int) -> None:
        # psycopg does the authentication; from then on we speak on its sockets.
        self._connections = [psycopg.connect(database_url, autocommit=True, sslmode="disable") for _ in range(size)]
        self._servers: SimpleQueue[socket.socket] = SimpleQueue()
        for conn in self._connections:
            server = socket.socket(fileno=os.dup(conn.fileno()))
            server.settimeout(None)
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._servers.put(server)
        info = self._connections[0].info
        self._hello = b"".join(
            message(b"S", f"{name}\0{info.parameter_status(name)}\0".encode()) for name in PARAMETERS
        )
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.turns = 0
        self._clients: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._clients.append(client)
                self._threads.append(threading.Thread(target=self._serve, args=(client,), daemon=True))
                self._threads[-1].start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            self._greet(client)
            while True:
                kind, data = read_message(client)
                if kind == b"X":
                    return
                server = self._servers.get()
                self.turns += 1
                try:
                    self._transaction(client, server, kind, data)
                finally:
                    self._servers.put(server)

    def _greet(self, client: socket.socket) -> None:
        while True:
            (size, code) = struct.unpack("!II", read(client, 8))
            read(client, size - 8)
            if code not in NO_ENCRYPTION:
                break
            client.sendall(b"N")
        client.sendall(message(b"R", struct.pack("!I", 0)) + self._hello)
        client.sendall(message(b"K", struct.pack("!II", 1, 1)) + message(b"Z", IDLE))

    def _transaction(self, client: socket.socket, server: socket.socket, kind: bytes, data: bytes) -> None:
        """Carry messages until the server says that no transaction is open."""
        while True:
            server.sendall(data)
            if kind in (b"S", b"Q"):
                answer = b""
                while answer != b"Z":
                    answer, data = read_message(server)
                    client.sendall(data)
                if data[-1:] == IDLE:
                    return
            kind, data = read_message(client)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for client in self._clients:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        while not self._servers.empty():
            self._servers.get().close()
        for conn in self._connections:
            conn.close()


@contextmanager
def pooled(database_url: str, size: int = 8) -> Iterator[tuple[Pooler, str]]:
    """A pooler, and the URL of the database behind it."""
    pooler = Pooler(database_url, size)
    try:
        parts: dict[str, Any] = {"host": "127.0.0.1", "port": pooler.port, "sslmode": "disable"}
        yield pooler, psycopg.conninfo.make_conninfo(database_url, **parts)
    finally:
        pooler.close()
