"""The supervisor: what it starts, where it serves, and what it says when a process ends. Its servers are
elsewhere here.
"""

from __future__ import annotations

import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hub.embedded.ports import LOOPBACK
from hub.embedded.processes import Child, ChildFailed
from hub.embedded.state import State
from hub.embedded.supervisor import Supervisor
from hub.settings import SettingsError

ELSEWHERE = {
    "DATABASE_URL": "postgresql://db.example/hub",
    "S3_ENDPOINT_URL": "https://s3.example",
    "S3_ACCESS_KEY_ID": "key",
    "S3_SECRET_ACCESS_KEY": "it's secret",
    "PACKHOUSE_SECRET_KEY": "s" * 40,
}
STUBBORN = "import signal; signal.signal(15, signal.SIG_IGN)\nwhile True: signal.pause()"


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    opened = State(tmp_path / "state")
    yield opened
    opened.close()


@pytest.fixture
def supervisor(state: State) -> Iterator[Supervisor]:
    made = Supervisor(state, ELSEWHERE)
    yield made
    made.stop()


@pytest.fixture
def add(supervisor: Supervisor, state: State) -> Callable[[str, str], Child]:
    """Give the supervisor a child that runs a Python script."""

    def start(name: str, script: str) -> Child:
        child = Child.start(name, [sys.executable, "-u", "-c", script], log=state.log(name), env={}, stop_seconds=10)
        supervisor.children.append(child)
        return child

    return start


def test_named_servers_replace_the_embedded_ones_each_by_itself(state: State) -> None:
    both = Supervisor(state, ELSEWHERE)
    assert (both.postgres, both.s3) == (None, None)
    database = Supervisor(state, {"DATABASE_URL": ELSEWHERE["DATABASE_URL"]})
    assert database.postgres is None
    assert database.s3 is not None
    s3 = Supervisor(state, {name: ELSEWHERE[name] for name in ELSEWHERE if name.startswith("S3_")})
    assert s3.postgres is not None
    assert s3.s3 is None


@pytest.mark.parametrize("name", ["S3_ACCESS_KEY_ID", "S3_SECRET_ACCESS_KEY"])
def test_keys_without_their_server_are_refused_by_name(state: State, name: str) -> None:
    with pytest.raises(SettingsError, match="S3_ENDPOINT_URL must be set as well"):
        Supervisor(state, {name: "key"})


def test_web_port_is_the_one_of_the_last_run(state: State, supervisor: Supervisor) -> None:
    with socket.socket() as holder:
        holder.bind((LOOPBACK, 0))
        free = holder.getsockname()[1]
    state.put("web_port", free)
    assert supervisor._choose_port() == free


def test_busy_web_port_is_avoided(state: State, supervisor: Supervisor) -> None:
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        listener.listen()
        busy = listener.getsockname()[1]
        state.put("web_port", busy)
        assert supervisor._choose_port() != busy


def test_wanted_web_port_is_taken_at_its_word(state: State) -> None:
    state.put("web_port", 8001)
    assert Supervisor(state, ELSEWHERE, port=8002)._choose_port() == 8002


def test_watch_names_the_process_that_ended_and_its_last_words(
    supervisor: Supervisor, add: Callable[[str, str], Child]
) -> None:
    add("worker", "import signal; signal.pause()")
    add("web", "import sys; sys.exit('no more room')")
    with pytest.raises(
        ChildFailed, match=r"^web ended by itself \(exit status 1\); the last lines of .*web\.log:\nno more"
    ):
        supervisor.watch()


def test_watch_names_the_signal_that_killed(supervisor: Supervisor, add: Callable[[str, str], Child]) -> None:
    add("web", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(ChildFailed, match=r"web ended by itself \(signal SIGKILL\)"):
        supervisor.watch()


def test_stop_is_bounded_for_each_child_and_asks_all_at_once(
    supervisor: Supervisor, add: Callable[[str, str], Child]
) -> None:
    stubborn, obedient = add("web", STUBBORN), add("worker", "import signal; signal.pause()")
    stubborn.stop_seconds = 0.1
    supervisor.stop()
    assert stubborn.popen.returncode in {-signal.SIGKILL, -signal.SIGTERM}, (
        "it may have been asked before it could say no"
    )
    assert obedient.popen.returncode == -signal.SIGTERM


def test_environment_file_is_private_and_read_by_a_shell(supervisor: Supervisor) -> None:
    path = supervisor.write_environment({"PACKHOUSE_TOKEN": 'a "token" with $signs'})
    assert path.stat().st_mode & 0o777 == 0o600
    script = f'. {shlex.quote(str(path))}; printf "%s|%s" "$S3_SECRET_ACCESS_KEY" "$PACKHOUSE_TOKEN"'
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == 'it\'s secret|a "token" with $signs'
