"""Children: tied to the supervisor's life, stopped within bounds, found again after a crash."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hub.embedded.processes import LAUNCHER, Child, ChildFailed, alive, clear_leftover, start_time

pytestmark = pytest.mark.system

READY_SECONDS = 20.0
Start = Callable[..., Child]


def wait_until(condition: Callable[[], bool]) -> None:
    """For what another process does: there is no event to wait for."""
    deadline = time.monotonic() + READY_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a Python script as a child that has said «ready»."""
    children: list[Child] = []

    def run(script: str, *, stop_seconds: float = READY_SECONDS, ready: bool = True) -> Child:
        child = Child.start(
            "sleeper",
            [sys.executable, "-u", "-c", script],
            log=tmp_path / "sleeper.log",
            env={},
            stop_seconds=stop_seconds,
        )
        children.append(child)
        if ready:
            wait_until(lambda: "ready" in child.tail())
        return child

    yield run
    for child in children:
        child.stop()


SLEEPER = "import signal; print('ready'); signal.pause()"
STUBBORN = "import signal; signal.signal(15, signal.SIG_IGN); print('ready')\nwhile True: signal.pause()"


def test_stop_ends_a_child_by_its_signal(start: Start) -> None:
    child = start(SLEEPER)
    child.stop()
    assert child.popen.returncode == -signal.SIGTERM


def test_child_that_ignores_the_signal_is_killed(start: Start) -> None:
    child = start(STUBBORN, stop_seconds=0.1)
    child.stop()
    assert child.popen.returncode == -signal.SIGKILL


def test_stop_after_the_end_is_harmless(start: Start) -> None:
    child = start("raise SystemExit(3)", ready=False)
    assert child.ended(READY_SECONDS) == 3
    child.stop()
    assert child.popen.returncode == 3


def test_failure_carries_the_last_lines_of_this_run(start: Start) -> None:
    earlier = start("print('of an earlier run')", ready=False)
    assert earlier.ended(READY_SECONDS) == 0
    child = start("import sys; [print('line', n) for n in range(100)]; sys.exit('the reason')", ready=False)
    assert child.ended(READY_SECONDS) == 1
    message = str(child.failure("ended"))
    assert message.startswith("sleeper ended; the last lines of ")
    assert message.endswith(("line 99\nthe reason", "the reason\nline 99"))
    assert "line 0\n" not in message
    assert "earlier run" not in message


def test_program_that_does_not_exist_says_so(tmp_path: Path) -> None:
    child = Child.start("nothing", ["/nonexistent/program"], log=tmp_path / "log", env={})
    assert child.ended(READY_SECONDS) == 127
    assert "/nonexistent/program: No such file or directory" in child.tail()


def test_child_is_started_away_from_the_terminal(start: Start) -> None:
    child = start(SLEEPER)
    assert os.getsid(child.popen.pid) != os.getsid(0)


def test_child_dies_with_a_killed_supervisor(tmp_path: Path) -> None:
    script = (
        "import os, pathlib, signal, sys; from hub.embedded.processes import Child\n"
        "child = Child.start('c', [sys.executable, '-u', '-c', sys.argv[1]], log=pathlib.Path(sys.argv[2]), env={})\n"
        "print(child.popen.pid, child.started, flush=True)\n"
        "signal.pause()"
    )
    log = tmp_path / "log"
    with subprocess.Popen([sys.executable, "-c", script, SLEEPER, log], stdout=subprocess.PIPE) as supervisor:
        assert supervisor.stdout is not None
        pid, started = (int(part) for part in supervisor.stdout.readline().split())
        wait_until(lambda: log.read_text().startswith("ready"))
        assert alive(pid, started)
        supervisor.kill()
    wait_until(lambda: not alive(pid, started))


def test_nothing_is_started_for_a_supervisor_that_is_gone() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    command = [sys.executable, "-I", "-S", str(LAUNCHER), str(gone.pid), "15", "own", "/bin/echo", "started"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_zombie_counts_as_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    started = start_time(child.pid)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert start_time(child.pid) == started, "it is still in the table of processes"
    assert not alive(child.pid, started)
    child.wait()


def test_other_process_with_the_same_number_is_not_taken_for_ours() -> None:
    mine = start_time(os.getpid())
    assert alive(os.getpid(), mine)
    assert not alive(os.getpid(), mine - 1)
    record = {"pid": os.getpid(), "started": mine - 1}
    assert not clear_leftover(record, stop_signal=signal.SIGTERM, seconds=1)


@pytest.mark.parametrize(("script", "seconds"), [(SLEEPER, READY_SECONDS), (STUBBORN, 0.1)])
def test_leftover_is_ended(start: Start, script: str, seconds: float) -> None:
    child = start(script)
    assert clear_leftover(child.record, stop_signal=signal.SIGTERM, seconds=seconds)
    assert not alive(**child.record)


def test_no_leftover_is_no_work() -> None:
    assert not clear_leftover(None, stop_signal=signal.SIGTERM, seconds=1)


def test_full_log_is_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hub.embedded.processes.LOG_BYTES_MAX", 10)
    log = tmp_path / "noisy.log"
    log.write_text("more than ten bytes")
    child = Child.start("noisy", [sys.executable, "-c", "print('new')"], log=log, env={})
    assert child.ended(READY_SECONDS) == 0
    assert log.read_text() == "new\n"
    assert (tmp_path / "noisy.log.1").read_text() == "more than ten bytes"


def test_error_is_the_supervisors_kind(start: Start) -> None:
    assert isinstance(start(SLEEPER).failure("ended"), ChildFailed)
