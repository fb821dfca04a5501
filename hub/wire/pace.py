"""A request's body must keep a pace: whoever sends a byte now and then would hold a thread for ever.

The rule is that of Apache's mod_reqtimeout, `body=SECONDS,MinRate=BYTES`, but the time in which the hub does not read,
since it works on what has come, is not counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from hub.errors import TooSlow

BYTES_PER_SECOND = 16 * 1024


class Receiver(Protocol):
    """What a socket does here."""

    def recv(self, size: int, /) -> bytes:
        """Up to `size` bytes. Raises BlockingIOError when none came in the time that the socket was given."""


class PacedSocket:
    """The socket of one request, while its body is read."""

    def __init__(self, sock: Receiver, idle_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`idle_seconds`: what the body may take beyond a second for each BYTES_PER_SECOND of it."""
        self._sock = sock
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._waited = 0.0
        self._received = 0
        self._is_late = False

    def recv(self, size: int) -> bytes:
        """Up to `size` bytes. Raises TooSlow, at once when it did before."""
        if not self._is_late:
            began = self._clock()
            try:
                chunk = self._sock.recv(size)
            except BlockingIOError:
                self._is_late = True
            else:
                self._waited += self._clock() - began
                self._received += len(chunk)
                self._is_late = self._waited > self._idle_seconds + self._received / BYTES_PER_SECOND
                if not self._is_late:
                    return chunk
        raise TooSlow(
            f"The body came too slowly: after a pause of {self._idle_seconds:g} s, or with less than "
            f"{BYTES_PER_SECOND} bytes a second. Nothing was changed; send the request again."
        )
