"""SIGTERM and SIGINT as something to wait for."""

from __future__ import annotations

import os
import select
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

STOP = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """From its making on, the stop signals of the process are collected here instead of ending it.

    Made in the main thread, waited for in any. The C handler itself writes each signal into a pipe: an Event, a
    lock or a queue that a Python handler releases can be missed by a main thread that is just about to block.
    """

    def __init__(self) -> None:
        self._received, self._written = os.pipe()
        os.set_blocking(self._written, False)
        signal.set_wakeup_fd(self._written, warn_on_full_buffer=False)
        for number in STOP:
            signal.signal(number, _ignore)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the next stop signal, at most `seconds`. Returns whether one has come."""
        while select.select([self._received], [], [], seconds)[0]:
            if os.read(self._received, 1)[0] in STOP:
                return True
        return False


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Only there because a signal without a Python handler is not written into the pipe."""
