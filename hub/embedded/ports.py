"""TCP ports on the loopback address that no other supervisor gives to its servers at the same moment.

To look whether a port is free proves nothing a moment later, when the server binds it. So a supervisor claims each
port first, and the hub gets a socket that listens already, which nobody can take from it. A program that is no
supervisor may still come in between; then Postgres and the S3 server end, and are started on other ports.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress

LOOPBACK = "127.0.0.1"
RANGE = range(20_000, 32_000)
"""Below the kernel's range for outgoing connections (32768 and up), which may take any port there between our
look and the server's bind."""
ATTEMPTS_MAX = 1_000
BACKLOG = 2048
"""Connections that wait to be accepted: gunicorn's own default."""


class NoFreePort(OSError):
    """No free port was found on 127.0.0.1."""


def _bound(port: int) -> socket.socket:
    """Return a socket that is bound to `port`. Raises OSError when somebody listens there."""
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # As servers do it: a port whose last connection is still in TIME_WAIT counts as free.
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        holder.bind((LOOPBACK, port))
    except OSError:
        holder.close()
        raise
    return holder


def are_free(ports: Iterable[int]) -> bool:
    """Say whether a server could listen on every one of `ports` now."""
    try:
        for port in ports:
            _bound(port).close()
    except OSError:
        return False
    return True


class Ports:
    """The ports of one supervisor: no other one on this machine chooses them until `close`, or our death.

    A claim is a Unix socket with an abstract name. The kernel gives a name to one process only, in the same network
    namespace where a port's number has its meaning, and takes it back when the process ends, however it ends.
    """

    def __init__(self) -> None:
        self._claims: dict[int, socket.socket] = {}

    def claim(self, port: int) -> bool:
        """Say whether `port` is ours from now on: it was already, or nobody else had claimed it."""
        if port in self._claims:
            return True
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            claim.bind(f"\0packhouse-port-{port}")
        except OSError:
            claim.close()
            return False
        self._claims[port] = claim
        return True

    def choose(self, count: int, *, preferred: Iterable[int] = ()) -> list[int]:
        """Return `count` different free ports, ours: those of `preferred` that can be had, then random ones.

        Raises NoFreePort after a bounded search.
        """
        chosen: list[int] = []
        for port in _candidates(preferred):
            if len(chosen) == count:
                break
            if port not in chosen and self.claim(port) and are_free([port]):
                chosen.append(port)
        if len(chosen) < count:
            raise NoFreePort(f"no {count} free ports between {RANGE.start} and {RANGE.stop} on {LOOPBACK}")
        return chosen

    def listen(self, *, preferred: Iterable[int] = ()) -> socket.socket:
        """Return a listening socket on the first of `preferred` that can be had, else on a random port.

        Raises NoFreePort after a bounded search.
        """
        for port in _candidates(preferred):
            if self.claim(port):
                with suppress(OSError):
                    return listen(port)
        raise NoFreePort(f"no free port between {RANGE.start} and {RANGE.stop} on {LOOPBACK}")

    def close(self) -> None:
        """Give every claim up. Repeating it is harmless."""
        while self._claims:
            self._claims.popitem()[1].close()


def listen(port: int) -> socket.socket:
    """Return a socket that listens on `port`. Raises NoFreePort when somebody else does."""
    try:
        listener = _bound(port)
        try:
            listener.listen(BACKLOG)
        except OSError:  # two may bind a port, for the sake of TIME_WAIT, but only one can listen
            listener.close()
            raise
    except OSError as error:
        raise NoFreePort(f"port {port} on {LOOPBACK} cannot be had: {error.strerror}") from error
    return listener


def _candidates(preferred: Iterable[int]) -> Iterator[int]:
    yield from preferred
    for _ in range(ATTEMPTS_MAX):
        yield random.choice(RANGE)  # noqa: S311  # no secret
