"""`packhouse up` as a person runs it: real processes from start to end, and nothing left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hub.settings import environment

pytestmark = [pytest.mark.system, pytest.mark.integration, pytest.mark.timeout(300)]

PATIENCE_SECONDS = 120.0
SERVING = "Ctrl-C stops everything."


def processes_of(state: Path) -> dict[int, str]:
    """The processes that belong to a state directory: it is named in their command line or environment."""
    found = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit() and int(place.name) != os.getpid():
            try:
                command = (place / "cmdline").read_bytes()
                known = command + (place / "environ").read_bytes()
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            if str(state).encode() in known:
                found[int(place.name)] = command.replace(b"\0", b" ").decode()[:200]
    return found


class Up:
    """A running `packhouse up` and what it has said so far."""

    def __init__(self, state: Path, *arguments: str) -> None:
        self.state = state
        # The variable marks every process that it starts.
        environ = {**environment(), "PACKHOUSE_STATE": str(state), "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hub.cli", "up", *arguments],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._lines: list[str] = []
        self._said = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._said:
                self._lines.append(line)
                self._said.notify_all()
        with self._said:
            self._lines.append("(end)")
            self._said.notify_all()

    @property
    def output(self) -> str:
        return "".join(self._lines)

    def wait_for(self, text: str) -> None:
        """Wait until `text` was said; the end of the program before that is an error."""
        with self._said:
            said = self._said.wait_for(lambda: text in self.output or "(end)" in self.output, PATIENCE_SECONDS)
        assert said, f"nothing was said for {PATIENCE_SECONDS} s:\n{self.output}"
        assert text in self.output, self.output

    def end(self) -> int:
        """Wait for the end; return the exit status."""
        status = self.process.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)
        return status

    def kept(self, name: str) -> Any:
        return json.loads((self.state / "state.json").read_text())[name]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.end()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    """Start `packhouse up` on the test's own state directory."""
    started: list[Up] = []

    def start(*arguments: str) -> Up:
        started.append(Up(tmp_path / "state", *arguments))
        return started[-1]

    yield start
    for each in started:
        each.close()
    wait_for_nobody(tmp_path / "state")


def wait_for_nobody(state: Path) -> None:
    deadline = time.monotonic() + 30
    while processes_of(state) and time.monotonic() < deadline:
        time.sleep(0.05)  # other people's children: there is no event to wait for
    assert processes_of(state) == {}


def test_example_comes_back_and_nothing_is_left(up: Callable[..., Up], tmp_path: Path) -> None:
    done = up("--once")
    assert done.end() == 0, done.output
    assert "pushed, indexed, prebuilt" in done.output
    assert "equal byte for byte" in done.output
    assert processes_of(tmp_path / "state") == {}


@pytest.mark.slow
def test_second_run_finds_the_example_and_compares_again(up: Callable[..., Up]) -> None:
    assert up("--once").end() == 0
    second = up("--once")
    assert second.end() == 0, second.output
    assert "already there" in second.output
    assert "equal byte for byte" in second.output


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One hub that serves several tests, which leave it running."""
    started = Up(tmp_path_factory.mktemp("serving") / "state")
    started.wait_for(SERVING)
    yield started
    started.close()
    wait_for_nobody(started.state)


@pytest.mark.slow
class TestServing:
    def test_second_supervisor_is_refused_and_the_first_goes_on(self, serving: Up) -> None:
        second = Up(serving.state, "--once")
        assert second.end() == 1
        second.close()
        assert f"is in use by process {serving.process.pid}" in second.output
        assert serving.process.poll() is None

    def test_printed_commands_work_as_they_are(self, serving: Up, tmp_path: Path) -> None:
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine/file").write_text("mine")
        commands = "\n".join(line for line in serving.output.splitlines() if line.startswith("  "))
        commands = commands.replace("DIRECTORY", "mine").replace("COPY", "copy")
        shell = shutil.which("sh")
        assert shell is not None
        done = subprocess.run(
            [shell, "-e"],
            input=commands,
            text=True,
            cwd=tmp_path,
            env={"PATH": os.defpath, "HOME": str(tmp_path)},
            capture_output=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "copy/file").read_text() == "mine"

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_signal_stops_everything_cleanly(self, up: Callable[..., Up], number: signal.Signals) -> None:
        started = up()
        started.wait_for(SERVING)
        assert len(processes_of(started.state)) >= 5, "postgres, s3, web, worker and their supervisor"
        started.process.send_signal(number)
        assert started.end() == 0, started.output
        assert processes_of(started.state) == {}
        assert "database system is shut down" in (started.state / "log/postgres.log").read_text()

    def test_stop_before_it_is_ready_is_no_success(self, up: Callable[..., Up]) -> None:
        starting = up("--once")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (starting.state / "state.json").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)  # another process makes the file: there is no event to wait for
        starting.process.send_signal(signal.SIGTERM)
        assert starting.end() == 1
        assert "before the example had come back" in starting.output
        # What initdb had started finds its pipe closed and ends by itself, a moment later.
        wait_for_nobody(starting.state)

    def test_killed_supervisor_takes_everything_along_and_can_be_started_again(self, up: Callable[..., Up]) -> None:
        killed = up()
        killed.wait_for(SERVING)
        killed.process.kill()
        killed.end()
        wait_for_nobody(killed.state)
        again = up("--once")
        assert again.end() == 0, again.output
        assert "already there" in again.output

    def test_death_of_a_process_is_reported_and_ends_the_rest(self, up: Callable[..., Up]) -> None:
        started = up()
        started.wait_for(SERVING)
        os.kill(started.kept("worker")["pid"], signal.SIGKILL)
        assert started.end() == 1
        assert "Error: worker ended by itself (signal SIGKILL); the last lines of" in started.output
        assert "log/worker.log" in started.output
        wait_for_nobody(started.state)


def test_half_replaced_s3_is_refused_by_name(tmp_path: Path) -> None:
    environ = {**environment(), "PACKHOUSE_STATE": str(tmp_path / "state"), "S3_ACCESS_KEY_ID": "key"}
    done = subprocess.run(
        [sys.executable, "-m", "hub.cli", "up", "--once"], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == "Error: S3_ENDPOINT_URL must be set as well, or neither of the S3 keys\n"
