import json
import random
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hub.cli import packhouse
from hub.client import workdir
from hub.client.tree import read_tree
from hub.client.workdir import Workdir
from hub.records import snapshot_id
from tests.hub.client.packs import history
from tests.hub.client.scripted import Reply, ScriptedServer, answer

HEAD = "a" * 64
TOKEN = "tok-secret-123"
EMPTY: dict[str, Any] = {"mpack_id": None, "url": None, "size": 0, "tips": {}, "default_branch": "main"}


def run(*arguments: object, token: str | None = None) -> Result:
    environ = {"PACKHOUSE_TOKEN": token}
    return CliRunner().invoke(packhouse, [str(argument) for argument in arguments], env=environ)


def accept_push(server: ScriptedServer, **refs: Any) -> None:
    server.on("GET", "refs", answer({"branch_heads": {}, "snapshots": {}, "default_branch": "main", **refs}))
    server.on("POST", "filter-objects", answer({"missing": []}))
    server.on("POST", "push/mpack/presign", answer({"mpack_key": "k", "upload": None}))
    jobs = [{"id": "j1", "task": "mpack.index", "status": "pending"}]
    server.on("POST", "push/mpack", answer({"ok": True, "branch_heads": {"main": HEAD}, "push_id": "p1", "jobs": jobs}))


def test_push_says_what_was_pushed(server: ScriptedServer, work: Path) -> None:
    accept_push(server)
    result = run("push", work, server.url, "-m", "one", token=TOKEN)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("main is now ")
    assert "5 files" in result.stdout
    assert result.stderr == ""
    assert {asked.headers["Authorization"] for asked in server.asked} == {f"Bearer {TOKEN}"}


def test_second_push_knows_its_address(server: ScriptedServer, work: Path) -> None:
    accept_push(server)
    assert run("push", work, server.url, "-m", "one").exit_code == 0
    assert run("push", work, "-m", "two").exit_code == 0
    assert len(server.asked_for("push/mpack")) == 2


def test_push_waits_for_no_other_command(server: ScriptedServer, work: Path) -> None:
    accept_push(server)
    assert run("push", work, server.url, "-m", "one").exit_code == 0
    with workdir.locked(work):
        result = run("push", work, "-m", "two")
    assert (result.exit_code, "at work" in result.stderr) == (1, True)


def test_push_from_below_a_clone_means_all_of_it(
    server: ScriptedServer, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept_push(server)
    workdir.save(work, Workdir(server.url, "main", None))
    monkeypatch.chdir(work / "src" / "deep")
    result = run("push", "-m", "one", "--json")
    assert json.loads(result.stdout)["files"] == 5


def test_only_an_address_means_this_directory(
    server: ScriptedServer, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept_push(server)
    monkeypatch.chdir(work)
    assert run("push", server.url, "-m", "one").exit_code == 0


def test_push_as_json_is_one_object_on_stdout(server: ScriptedServer, work: Path) -> None:
    accept_push(server)
    (work / "link").symlink_to("README")
    result = run("push", work, server.url, "-m", "one", "--json")
    said = json.loads(result.stdout)
    assert said["ok"] is True
    assert said["push_id"] == "p1"
    assert said["jobs"] == [{"id": "j1", "task": "mpack.index", "status": "pending"}]
    assert said["skipped"] == [{"path": "link", "reason": "a symbolic link"}]
    assert result.stderr == ""


def test_what_is_left_out_is_said_on_stderr(server: ScriptedServer, work: Path) -> None:
    accept_push(server)
    for number in range(12):
        (work / f"link{number:02}").symlink_to("README")
    result = run("push", work, server.url, "-m", "one")
    lines = result.stderr.splitlines()
    assert lines[0] == "left out: link00 (a symbolic link)"
    assert lines[-1].startswith("left out: 2 more")


def test_quiet_push_prints_nothing(server: ScriptedServer, work: Path) -> None:
    accept_push(server)
    result = run("push", work, server.url, "-m", "one", "--quiet")
    assert (result.exit_code, result.output) == (0, "")


def test_nothing_new_is_up_to_date(server: ScriptedServer, work: Path) -> None:
    accept_push(server, branch_heads={"main": HEAD}, snapshots={"main": snapshot_id(read_tree(work).manifest)})
    result = run("push", work, server.url, "-m", "one")
    assert (result.exit_code, result.stdout) == (0, "Everything up to date\n")


def test_push_that_waits_says_when_clones_can_have_it(server: ScriptedServer, work: Path) -> None:
    accept_push(server)
    server.on("GET", "pushes/p1", answer({"push_id": "p1", "status": "prebuilt", "jobs": []}))
    result = run("push", work, server.url, "-m", "one", "--wait")
    assert result.stdout.endswith("Clones can have it now.\n")


def test_push_whose_background_work_fails_still_says_what_was_pushed(server: ScriptedServer, work: Path) -> None:
    accept_push(server)
    failed = {"push_id": "p1", "status": "failed", "reason": "mpack.index has failed", "jobs": []}
    server.on("GET", "pushes/p1", answer(failed))
    result = run("push", work, server.url, "-m", "one", "--wait", "--json")
    said = json.loads(result.stdout)
    assert (result.exit_code, said["ok"], said["error"], said["push_id"]) == (1, False, "PUSH_FAILED", "p1")


def test_refusal_is_exit_code_1_with_the_servers_sentence(server: ScriptedServer, work: Path) -> None:
    server.on("GET", "refs", answer({"error": "FORBIDDEN", "message": "Alice may not write here."}, 403))
    result = run("push", work, server.url, "-m", "one", token=TOKEN)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: Alice may not write here.")
    assert TOKEN not in result.output


def test_error_as_json_names_its_code(server: ScriptedServer, work: Path) -> None:
    server.on("GET", "refs", answer({"error": "FORBIDDEN", "message": "No."}, 403))
    result = run("push", work, server.url, "-m", "one", "--json")
    said = json.loads(result.stdout)
    assert (said["ok"], said["error"], result.exit_code) == (False, "FORBIDDEN", 1)


@pytest.mark.parametrize(
    "arguments",
    [
        ["push", "-m", "x", "a", "b", "c"],
        ["push", "-m", "x", "a", "b"],
        ["push", "."],
        ["clone"],
        ["clone", "ada/notes"],
        ["clone", "--wait", "-1", "http://127.0.0.1/ada/notes"],
        ["push", "-m", "x", "/nonexistent", "http://127.0.0.1:1/ada/notes"],
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: list[str]) -> None:
    assert run(*arguments).exit_code == 2


def test_push_without_a_known_address_says_what_to_give(work: Path) -> None:
    result = run("push", work, "-m", "one")
    assert result.exit_code == 2
    assert "packhouse push DIR URL" in result.stderr


def test_token_is_refused_for_plain_http_and_not_shown(work: Path) -> None:
    result = run("push", work, "http://hub.example.org/ada/notes", "-m", "one", token=TOKEN)
    assert result.exit_code == 2
    assert "plain http" in result.stderr
    assert TOKEN not in result.output


def test_garbage_instead_of_a_hub_is_exit_code_3(server: ScriptedServer, tmp_path: Path) -> None:
    server.on("POST", "fetch/mpack", Reply(200, b"<html>hello</html>"))
    result = run("clone", server.url, tmp_path / "notes")
    assert result.exit_code == 3
    assert "no hub" in result.stderr


def test_wrong_bytes_are_exit_code_4(server: ScriptedServer, tmp_path: Path) -> None:
    told = history({"a": b"1"})
    server.on("POST", "fetch/mpack", answer(told.offer(f"{server.root}/pack")))
    server.on("GET", "/pack", Reply(200, told.pack[:-1] + b"!"))
    result = run("clone", server.url, tmp_path / "notes")
    assert result.exit_code == 4
    assert list(tmp_path.iterdir()) == []


@contextmanager
def small_disk() -> Iterator[None]:
    """No file may become larger than 50,000 bytes: the system refuses the write in its middle, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_full_disk_is_a_sentence_and_leaves_nothing(server: ScriptedServer, tmp_path: Path) -> None:
    told = history({"a": random.Random(1).randbytes(200_000)})
    server.on("POST", "fetch/mpack", answer(told.offer(f"{server.root}/pack")))
    server.on("GET", "/pack", Reply(200, told.pack))
    with small_disk():
        result = run("clone", server.url, tmp_path / "notes")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert result.stderr.startswith("Error: A file cannot be read or written: File too large.")
    assert list(tmp_path.iterdir()) == []


def test_full_temporary_directory_is_a_sentence(server: ScriptedServer, work: Path) -> None:
    (work / "large").write_bytes(random.Random(1).randbytes(200_000))
    missing = sorted(read_tree(work).manifest.values())
    server.on("GET", "refs", answer({"branch_heads": {}, "snapshots": {}, "default_branch": "main"}))
    server.on("POST", "filter-objects", answer({"missing": missing}))
    with small_disk():
        result = run("push", work, server.url, "-m", "one")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "temporary directory: File too large" in result.stderr


def test_clone_goes_to_a_directory_named_like_the_repository(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = history({"a": b"1", "b": b"2"})
    server.on("POST", "fetch/mpack", answer(told.offer(f"{server.root}/pack")))
    server.on("GET", "/pack", Reply(200, told.pack))
    monkeypatch.chdir(tmp_path)
    result = run("clone", server.url)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"notes has 2 files of main at {told.head} (1 commit, ")
    assert (tmp_path / "notes" / "b").read_bytes() == b"2"


def test_clone_as_json(server: ScriptedServer, tmp_path: Path) -> None:
    told = history({"a": b"1"}, {"a": b"2"})
    server.on("POST", "fetch/mpack", answer(told.offer(f"{server.root}/pack")))
    server.on("GET", "/pack", Reply(200, told.pack))
    said = json.loads(run("clone", server.url, tmp_path / "notes", "--json").stdout)
    assert (said["ok"], said["head"], said["commits"], said["files"]) == (True, told.head, 2, 1)
    assert said["mpack_id"] == told.mpack_id


def test_clone_of_an_empty_repository_is_no_error(server: ScriptedServer, tmp_path: Path) -> None:
    server.on("POST", "fetch/mpack", answer(EMPTY))
    result = run("clone", server.url, tmp_path / "notes")
    assert (result.exit_code, "empty repository" in result.stdout) == (0, True)


def test_clone_that_may_not_wait_names_the_job_it_would_wait_for(server: ScriptedServer, tmp_path: Path) -> None:
    why = [{"job_id": "j1", "task": "mpack.index", "status": "running", "sentence": "Job j1 indexes."}]
    told = {"error": "MPACK_NOT_READY", "message": "The pack is being made.", "why": why}
    server.on("POST", "fetch/mpack", answer(told, 503, Retry_After="1"))
    result = run("clone", server.url, tmp_path / "notes", "--wait", "0")
    assert result.exit_code == 1
    assert "being made" in result.stderr
    assert "Job j1 indexes." in result.stderr
