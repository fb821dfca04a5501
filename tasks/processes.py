"""Several worker processes under one parent: it starts them again when they die, and ends them with itself.

A child is this very command line with one process. It holds the read end of a pipe whose write end only the parent
has: when the parent dies, by whatever way, the child reads the end of the file and stops as if by SIGTERM.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from tasks.signals import StopSignals

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.2
EARLY_SECONDS = 10.0
"""A child that dies sooner than this after its start has died early."""
EARLY_DEATHS_MAX = 5
"""So many early deaths in a row, of any children: what is wrong will not be better the next time."""
EXIT_SPENT = 75
"""Exit code of a worker that has a thread which no time limit can end: start another one (EX_TEMPFAIL)."""
EXIT_GAVE_UP = 70
"""Exit code of the parent when its children die too fast (EX_SOFTWARE)."""


def follow(lifeline: int) -> None:
    """Stop this process, as by SIGTERM, when the other end of the pipe `lifeline` is closed."""

    def wait_for_the_end() -> None:
        os.read(lifeline, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait_for_the_end, name="lifeline", daemon=True).start()


class Parent:
    """Keeps `count` children alive until a signal comes. Made and run in the main thread."""

    def __init__(self, command: Sequence[str], count: int) -> None:
        self._command = list(command)
        self._count = count
        self._signals = StopSignals()
        # Not inheritable: the end that children hold is passed on by name, the other one to nobody.
        self._lifeline, self._kept = os.pipe()
        self._children: dict[int, tuple[subprocess.Popen[bytes], float]] = {}
        self._early: deque[float] = deque(maxlen=EARLY_DEATHS_MAX)

    def run(self) -> int:
        """Start the children and replace those that die. Returns the exit code of the parent."""
        for number in range(self._count):
            self._start(number)
        while not self._signals.wait(LOOK_SECONDS):
            for number, (child, started) in list(self._children.items()):
                if child.poll() is not None:
                    self._note_death(number, child, time.monotonic() - started)
                    if len(self._early) == EARLY_DEATHS_MAX:
                        log.error("%d workers died within %g s of their start, giving up", *self._limits())
                        self._stop()
                        return EXIT_GAVE_UP
                    self._start(number)
        self._stop()
        return 0

    @staticmethod
    def _limits() -> tuple[int, float]:
        return EARLY_DEATHS_MAX, EARLY_SECONDS

    def _start(self, number: int) -> None:
        command = [*self._command, "--lifeline", str(self._lifeline), "--child", str(number)]
        # A session of its own: Ctrl-C reaches the parent only, which passes it on once.
        child = subprocess.Popen(command, pass_fds=[self._lifeline], start_new_session=True)
        self._children[number] = child, time.monotonic()

    def _note_death(self, number: int, child: subprocess.Popen[bytes], lived: float) -> None:
        if child.returncode == EXIT_SPENT:
            log.warning("worker %d (pid %d) is spent and replaced", number, child.pid)
            return
        log.error("worker %d (pid %d) died with %d after %.1f s, replaced", number, child.pid, child.returncode, lived)
        if lived < EARLY_SECONDS:
            self._early.append(lived)
        else:
            self._early.clear()

    def _stop(self) -> None:
        """Pass each signal on until all children have ended; they hand back their jobs."""
        self._send()
        while any(child.poll() is None for child, _ in self._children.values()):
            if self._signals.wait(LOOK_SECONDS):
                self._send()

    def _send(self) -> None:
        for child, _ in self._children.values():
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)


def own_command() -> list[str]:
    """The command line of this process, to be run again by the same interpreter."""
    return [sys.executable, *sys.orig_argv[1:]]
