"""Children of the supervisor.

They are started so that they cannot outlive it, stopped within bounds, and found again after a crash.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LAUNCHER = Path(__file__).with_name("launch.py")
LOG_BYTES_MAX = 8 * 1024 * 1024
TAIL_BYTES = 8 * 1024
POLL_SECONDS = 0.02
KILL_SECONDS = 5.0


class ChildFailed(RuntimeError):
    """A child ended although it should run, or never became ready. The message carries its last log lines."""


def alive(pid: int, started: int) -> bool:
    """Say whether the process `pid` that began at `started` (clock ticks since boot) still runs.

    A zombie counts as dead: after a crash it may keep its number until init reaps it, a second or two later.
    The start time tells it from a later process with the same number.
    """
    try:
        # The name in parentheses may hold spaces and parentheses; the fixed fields begin after the last one.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return fields[0] not in {"Z", "X"} and int(fields[19]) == started


def start_time(pid: int) -> int:
    """Return when `pid` began, in clock ticks since boot; 0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def clear_leftover(record: Mapping[str, Any] | None, *, stop_signal: int, seconds: float) -> bool:
    """End a process that a killed supervisor left behind; return whether there was one.

    `record` is a `Child.record` of an earlier run. Asks with `stop_signal`, waits up to `seconds`, then
    SIGKILL.
    """
    if record is None or not alive(record["pid"], record["started"]):
        return False
    pid, started = int(record["pid"]), int(record["started"])
    for number, patience in ((stop_signal, seconds), (signal.SIGKILL, KILL_SECONDS)):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return True
        deadline = time.monotonic() + patience
        while alive(pid, started):
            if time.monotonic() > deadline:
                break
            time.sleep(POLL_SECONDS)  # not our child: there is no event to wait for
        else:
            return True
    raise ChildFailed(f"process {pid}, left over from an earlier run, does not end")


@dataclass(slots=True)
class Child:
    """A running child process and its log."""

    name: str
    popen: subprocess.Popen[bytes]
    log: Path
    log_begin: int
    stop_signal: int
    stop_seconds: float
    started: int
    asked: bool = False

    @classmethod
    def start(  # noqa: PLR0913  # one per property of a process
        cls,
        name: str,
        command: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str],
        cwd: Path | None = None,
        identity: str = "own",
        stop_signal: int = signal.SIGTERM,
        stop_seconds: float = 10.0,
        keep: socket.socket | None = None,
    ) -> Child:
        """Start `command`; its output is appended to `log`.

        It gets a session of its own, so that Ctrl-C reaches the supervisor alone and children stop in order,
        and `stop_signal` from the kernel when the supervisor dies. Of our open files it inherits the socket `keep`
        alone, under the same number. Call it from the main thread: the kernel ties the child's life to the thread
        that forked it.
        """
        if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
            log.replace(log.with_suffix(".log.1"))
        launcher = [sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), str(int(stop_signal)), identity]
        with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as output:
            begin = output.tell()
            popen = subprocess.Popen(
                [*launcher, *(str(part) for part in command)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(env),
                cwd=cwd,
                start_new_session=True,
                pass_fds=() if keep is None else (keep.fileno(),),
            )
        return cls(name, popen, log, begin, stop_signal, stop_seconds, start_time(popen.pid))

    @property
    def record(self) -> dict[str, int]:
        """What a later run needs to find this process again."""
        return {"pid": self.popen.pid, "started": self.started}

    def ended(self, seconds: float = 0.0) -> int | None:
        """Return the exit status when the child ends within `seconds`, None when it still runs then."""
        try:
            return self.popen.wait(seconds) if seconds else self.popen.poll()
        except subprocess.TimeoutExpired:
            return None

    def tail(self, lines: int = 15) -> str:
        """Return the last lines that the child wrote in this run."""
        with self.log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(self.log_begin, size - TAIL_BYTES))
            text = file.read().decode(errors="replace")
        return "\n".join(text.strip().splitlines()[-lines:])

    def failure(self, what: str) -> ChildFailed:
        """Return an error that says `what` happened, with the last log lines."""
        return ChildFailed(f"{self.name} {what}; the last lines of {self.log}:\n{self.tail()}")

    def ask_to_stop(self) -> None:
        """Send the stop signal, once: many programs take a second one as an order to drop everything."""
        if not self.asked and self.popen.poll() is None:
            self.popen.send_signal(self.stop_signal)
            self.asked = True

    def stop(self) -> None:
        """Ask the child to end, wait its bounded time, then kill its whole session.

        Repeating it is harmless.
        """
        if self.popen.poll() is None:
            self.ask_to_stop()
            if self.ended(self.stop_seconds) is None:
                os.killpg(self.popen.pid, signal.SIGKILL)
                self.popen.wait(KILL_SECONDS)
