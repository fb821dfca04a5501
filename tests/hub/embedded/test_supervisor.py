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
from contextlib import closing
from pathlib import Path

import pytest

from hub.embedded.ports import LOOPBACK, NoFreePort
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


@pytest.mark.integration
def test_bucket_has_its_volume_before_the_first_push(state: State) -> None:
    hub = Supervisor(state, {"DATABASE_URL": ELSEWHERE["DATABASE_URL"]})
    try:
        hub.start_servers()
        assert list(state.folder("s3/data").glob(f"{hub.settings.s3_bucket}_*.dat"))
    finally:
        hub.stop()


@pytest.mark.parametrize("name", ["S3_ACCESS_KEY_ID", "S3_SECRET_ACCESS_KEY"])
def test_keys_without_their_server_are_refused_by_name(state: State, name: str) -> None:
    with pytest.raises(SettingsError, match="S3_ENDPOINT_URL must be set as well"):
        Supervisor(state, {name: "key"})


def test_web_port_is_the_one_of_the_last_run(state: State, supervisor: Supervisor) -> None:
    with socket.socket() as holder:
        holder.bind((LOOPBACK, 0))
        free = holder.getsockname()[1]
    state.put("web_port", free)
    with supervisor._listen() as listener:
        assert listener.getsockname()[1] == free


def test_busy_web_port_is_avoided(state: State, supervisor: Supervisor) -> None:
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        listener.listen()
        busy = listener.getsockname()[1]
        state.put("web_port", busy)
        with supervisor._listen() as ours:
            assert ours.getsockname()[1] != busy


def test_wanted_web_port_is_taken_at_its_word(state: State) -> None:
    first, second = state.ports.choose(2)
    state.put("web_port", first)
    with Supervisor(state, ELSEWHERE, port=second)._listen() as listener:
        assert listener.getsockname()[1] == second
        with pytest.raises(NoFreePort, match=f"port {second} on 127.0.0.1 cannot be had"):
            Supervisor(state, ELSEWHERE, port=second)._listen()


def test_two_hubs_that_start_at_the_same_moment_serve_at_two_addresses(state: State, tmp_path: Path) -> None:
    other = State(tmp_path / "other")
    with closing(other):
        for each in (state, other):
            each.put("web_port", 8000)
        hubs = [Supervisor(each, ELSEWHERE) for each in (state, other)]
        try:
            for hub in hubs:
                hub.start_hub()
            # Both web processes are only being started: the addresses are decided already.
            assert hubs[0].url != hubs[1].url
            for hub in hubs:
                with socket.create_connection((LOOPBACK, hub.port)):
                    assert hub.state.get("web_port") == hub.port
        finally:
            for hub in hubs:
                hub.stop()


def test_child_inherits_the_socket_that_it_is_to_keep_and_alone_answers_there(state: State) -> None:
    script = "import socket, sys; s = socket.socket(fileno=int(sys.argv[1])); s.accept()[0].sendall(b'child')"
    with state.ports.listen() as listener:
        address = listener.getsockname()
        command = [sys.executable, "-c", script, str(listener.fileno())]
        child = Child.start("web", command, log=state.log("web"), env={}, keep=listener)
    try:
        with socket.create_connection(address, timeout=10) as connection:
            assert connection.recv(5) == b"child"
    finally:
        child.stop()


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
