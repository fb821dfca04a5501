"""Free TCP ports on the loopback address."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable
from contextlib import ExitStack

LOOPBACK = "127.0.0.1"
RANGE = range(20_000, 32_000)
"""Below the kernel's range for outgoing connections (32768 and up), which may take any port there between our
look and the server's bind."""
ATTEMPTS_MAX = 1_000


class NoFreePort(OSError):
    """No free port was found on 127.0.0.1."""


def _bind(stack: ExitStack, port: int) -> bool:
    holder = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    # As servers do it: a port whose last connection is still in TIME_WAIT counts as free.
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        holder.bind((LOOPBACK, port))
    except OSError:
        return False
    return True


def are_free(ports: Iterable[int]) -> bool:
    """Say whether a server could listen on every one of `ports` now."""
    with ExitStack() as stack:
        return all(_bind(stack, port) for port in ports)


def choose(count: int, *, preferred: Iterable[int] = ()) -> list[int]:
    """Return `count` different free ports: those of `preferred` that are free, then random ones.

    Raises NoFreePort after a bounded search.
    """
    chosen: list[int] = []
    with ExitStack() as stack:
        for port in preferred:
            if len(chosen) < count and port not in chosen and _bind(stack, port):
                chosen.append(port)
        for _ in range(ATTEMPTS_MAX):
            if len(chosen) == count:
                return chosen
            port = random.choice(RANGE)  # noqa: S311  # no secret
            if port not in chosen and _bind(stack, port):
                chosen.append(port)
    if len(chosen) == count:
        return chosen
    raise NoFreePort(f"no {count} free ports between {RANGE.start} and {RANGE.stop} on {LOOPBACK}")
