"""The state directory: its owner, its modes, what it keeps."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hub.embedded.state import State, StateError, StateInUse


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    opened = State(tmp_path / "state")
    yield opened
    opened.close()


def test_directory_and_file_are_private(state: State) -> None:
    state.put("answer", 42)
    assert state.directory.stat().st_mode & 0o777 == 0o700
    assert (state.directory / "state.json").stat().st_mode & 0o777 == 0o600
    assert state.log("web").parent.stat().st_mode & 0o777 == 0o700


def test_directory_that_was_open_to_others_is_closed(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o755)
    State(tmp_path / "state").close()
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700


def test_second_owner_is_refused_and_told_who_is_first(state: State) -> None:
    with pytest.raises(StateInUse, match=f"process {os.getpid()}"):
        State(state.directory)


def test_killed_owner_leaves_no_lock(tmp_path: Path) -> None:
    script = "import os, sys, pathlib; from hub.embedded.state import State\n"
    script += "state = State(pathlib.Path(sys.argv[1])); os.kill(os.getpid(), 9)"
    killed = subprocess.run([sys.executable, "-c", script, tmp_path / "state"], check=False)
    assert killed.returncode == -9
    State(tmp_path / "state").close()


def test_values_survive_the_owner(state: State) -> None:
    state.put("ports", [1, 2])
    secret = state.secret("password")
    state.close()
    again = State(state.directory)
    assert again.get("ports") == [1, 2]
    assert again.secret("password") == secret
    again.close()


def test_secrets_differ(state: State) -> None:
    assert state.secret("one") != state.secret("two")
    assert len(state.secret("one")) == 40


def test_forgotten_value_is_gone(state: State) -> None:
    state.put("worker", {"pid": 1})
    state.put("worker", None)
    assert state.get("worker") is None


def test_damaged_file_is_refused_with_a_way_out(state: State) -> None:
    (state.directory / "state.json").write_text("{")
    state.close()
    with pytest.raises(StateError, match=r"damaged; remove .* to begin anew"):
        State(state.directory)


def test_refused_directory_is_left_unlocked(state: State) -> None:
    (state.directory / "state.json").write_text("[]")
    state.close()
    with pytest.raises(StateError):
        State(state.directory)
    (state.directory / "state.json").unlink()
    State(state.directory).close()


def test_file_in_the_place_of_the_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(StateError, match="cannot be used"):
        State(tmp_path / "state")
