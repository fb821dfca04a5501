"""From one socket to another within the kernel: the bytes do not come into this process.

splice(2) moves them through a pipe. It is Linux', and needs two plain sockets: with TLS, the bytes of the one are not
those of the other.
"""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress
from typing import Protocol, runtime_checkable

PIPE_BYTES = 1024 * 1024
"""What a pipe may take without privileges. With its 64 KiB the way costs as much as reading and sending."""


@runtime_checkable
class Tap(Protocol):
    """A source whose bytes come out of a plain socket as they are."""

    def read_ahead(self) -> bytes:
        """Return what was read from the socket and not handed out yet, or else what comes next; then `fill` goes on."""
        ...

    def fill(self, pipe: int, size: int) -> int:
        """Let up to `size` of the next bytes into the pipe; how many, 0 at the end. Raises Unavailable."""
        ...


def can_relay(target: socket.socket) -> bool:
    """Whether `relay` can send to this socket: no TLS, and a call that waits."""
    return sys.platform == "linux" and type(target) is socket.socket and target.gettimeout() is None


def relay(source: Tap, target: socket.socket, size: int) -> int:
    """Send `size` bytes that come next; how many there were, fewer when the source has ended before.

    Raises what `Tap.fill` does, and OSError for the target, BlockingIOError after its SO_SNDTIMEO.
    """
    import fcntl  # not on every system

    left = size
    out_of, into = os.pipe()
    try:
        with suppress(PermissionError):  # this user has many pipes: a small one does it, too
            fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        while left and (inside := source.fill(into, min(left, PIPE_BYTES))):
            left -= inside
            while inside:
                inside -= os.splice(out_of, target.fileno(), inside)
    finally:
        os.close(out_of)
        os.close(into)
    return size - left
