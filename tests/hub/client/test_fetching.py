import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hub.cli import packhouse
from hub.client import packs, workdir
from hub.client.errors import BadInput, LocalConflict, VerificationFailed
from hub.client.fetching import Moved, fetch
from hub.client.progress import Silent
from hub.client.transport import Remote
from hub.client.workdir import Workdir
from hub.records import object_id
from tests.hub.client.packs import History, history, history_after
from tests.hub.client.scripted import Reply, ScriptedServer, answer

FIRST = {"README": b"hello\n", "src/a": b"aaa"}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(packhouse, [str(argument) for argument in arguments])


@pytest.fixture
def old() -> History:
    return history(FIRST)


@pytest.fixture
def kept(server: ScriptedServer, tmp_path: Path, old: History) -> Path:
    """A clone of `old`."""
    root = tmp_path / "copy"
    workdir.save_heads(make(root), {"main": old.head})
    workdir.save(root, Workdir(server.url, "main", old.head))
    keep(root, old)
    return root


def make(root: Path) -> Path:
    root.mkdir()
    return root


def keep(root: Path, told: History) -> None:
    place = workdir.pack_path(root, told.mpack_id)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(told.pack)


def offer(server: ScriptedServer, told: History, **heads: str) -> None:
    server.on("GET", "refs", answer({"branch_heads": {"main": told.head} | heads}))
    server.on("POST", "fetch/mpack", answer(told.offer(f"{server.root}/pack")))
    server.on("GET", "/pack", Reply(200, told.pack))


def test_fetch_asks_for_what_is_new_only(server: ScriptedServer, remote: Remote, kept: Path, old: History) -> None:
    new = history_after(old, FIRST | {"new": b"new"})
    offer(server, new)
    result = fetch(remote, kept, Silent())
    assert server.asked_for("fetch/mpack")[0].json == {"want": [new.head], "have": [old.head]}
    assert result.moved == (Moved("main", old.head, new.head),)
    assert (result.commits, result.bytes_received) == (1, len(new.pack))
    assert workdir.load_heads(kept) == {"main": new.head}
    assert workdir.load(kept) == Workdir(server.url, "main", old.head)
    assert packs.read_commits(kept).keys() == {old.head, new.head}


def test_fetch_of_nothing_new_asks_for_the_branches_only(
    server: ScriptedServer, remote: Remote, kept: Path, old: History
) -> None:
    server.on("GET", "refs", answer({"branch_heads": {"main": old.head}}))
    assert fetch(remote, kept, Silent()).moved == ()
    assert len(server.asked) == 1


def test_branch_that_is_gone_is_told(server: ScriptedServer, remote: Remote, kept: Path, old: History) -> None:
    workdir.save_heads(kept, {"main": old.head, "side": old.head})
    server.on("GET", "refs", answer({"branch_heads": {"main": old.head}}))
    assert fetch(remote, kept, Silent()).moved == (Moved("side", old.head, None),)


def test_pack_that_lacks_an_object_is_refused_and_not_kept(
    server: ScriptedServer, remote: Remote, kept: Path, old: History
) -> None:
    offer(server, history_after(old, {"new": b"new"}, leave_out=[object_id(b"new")]))
    with pytest.raises(VerificationFailed, match="lacks object"):
        fetch(remote, kept, Silent())
    assert packs.read_commits(kept).keys() == {old.head}
    assert [path.name for path in (kept / ".packhouse").iterdir() if "incoming" in path.name] == []


def test_head_whose_files_are_not_here_is_not_claimed(
    server: ScriptedServer, remote: Remote, kept: Path, old: History
) -> None:
    """Such a directory was pushed by an older program, or its packs were removed."""
    workdir.pack_path(kept, old.mpack_id).unlink()
    whole = history(FIRST, FIRST | {"new": b"new"})
    offer(server, whole)
    fetch(remote, kept, Silent())
    assert server.asked_for("fetch/mpack")[0].json["have"] == []


def test_damaged_pack_is_named(remote: Remote, kept: Path, old: History) -> None:
    workdir.pack_path(kept, old.mpack_id).write_bytes(old.pack[:-1] + b"!")
    with pytest.raises(BadInput, match=rf"packs/{old.mpack_id}.mpack is damaged"):
        packs.read_commits(kept)


def test_two_commands_in_one_directory_do_not_mix(kept: Path) -> None:
    with workdir.locked(kept):
        result = run("fetch", kept)
    assert (result.exit_code, "at work" in result.stderr) == (LocalConflict.exit_code, True)


def test_fetch_says_what_has_moved(server: ScriptedServer, kept: Path, old: History) -> None:
    new = history_after(old, {"new": b"new"})
    offer(server, new, side=old.head)
    result = run("fetch", kept)
    assert result.stdout.splitlines()[:2] == [
        f"main is at {new.head} (was {old.head[:12]})",
        f"side is at {old.head} (new)",
    ]
    assert run("fetch", kept).stdout == "Everything up to date\n"
    assert json.loads(run("fetch", kept, "--json").stdout)["heads"] == {"main": new.head, "side": old.head}


def test_fetch_outside_of_a_working_directory_is_wrong_usage(tmp_path: Path) -> None:
    result = run("fetch", tmp_path)
    assert (result.exit_code, "was not cloned or pushed" in result.stderr) == (2, True)


# --- log, ls-remote -------------------------------------------------------------------------------


def test_log_needs_no_network_and_shows_the_newest_first(kept: Path, old: History) -> None:
    new = history_after(old, {"new": b"new"}, {"newer": b"new"})
    keep(kept, new)
    workdir.save_heads(kept, {"main": new.head})
    said = json.loads(run("log", kept, "--json").stdout)
    assert [entry["commit_id"] for entry in said["commits"]] == [old.head]
    said = json.loads(run("log", kept, "--branch", "main", "--json", "-n", "2").stdout)
    assert [entry["commit_id"] for entry in said["commits"]] == [new.commits[1].commit_id, new.commits[0].commit_id]
    assert said["commits"][0]["parents"] == [new.commits[0].commit_id]


def test_log_of_an_unknown_branch_names_those_that_are_known(kept: Path) -> None:
    result = run("log", kept, "--branch", "nowhere")
    assert (result.exit_code, "there are main" in result.stderr) == (1, True)


def test_log_obeys_no_control_characters(kept: Path, old: History) -> None:
    evil = history_after(old, {"a": b"1"}, message="red \x1b[31m\nsecond line")
    keep(kept, evil)
    workdir.save(kept, Workdir("http://127.0.0.1:1/ada/notes", "main", evil.head))
    result = run("log", kept)
    assert "\x1b" not in result.stdout
    assert "    second line 0\n" in result.stdout


def test_log_that_lacks_older_commits_says_so(kept: Path, old: History) -> None:
    new = history_after(old, {"new": b"new"})
    workdir.pack_path(kept, old.mpack_id).unlink()
    keep(kept, new)
    workdir.save(kept, Workdir("http://127.0.0.1:1/ada/notes", "main", new.head))
    assert "Older commits are not kept here" in run("log", kept).stderr


def test_log_of_an_address_asks_the_hub_page_by_page(server: ScriptedServer, old: History) -> None:
    entry = {"commit_id": old.head, "parents": [], "author": "Ada", "branch": "main", "message": "one"}
    path = "/api/repositories/ada/notes/commits"
    server.on("GET", path, answer({"commits": [entry], "next": "c1"}), answer({"commits": [entry], "next": None}))
    result = run("log", server.url, "--branch", "main", "-n", "5")
    assert result.stdout.count(f"commit {old.head}\nAuthor: Ada\n") == 2
    assert [asked.path.partition("?")[2] for asked in server.asked] == ["ref=main&limit=5", "ref=main&limit=4&after=c1"]


def test_branch_names_complete_in_the_shell(kept: Path, old: History, monkeypatch: pytest.MonkeyPatch) -> None:
    workdir.save_heads(kept, {"main": old.head, "maint/1": old.head, "dev": old.head})
    monkeypatch.chdir(kept)
    environ = {"COMP_WORDS": "packhouse log --branch ma", "COMP_CWORD": "3", "_PACKHOUSE_COMPLETE": "bash_complete"}
    result = CliRunner().invoke(packhouse, [], env=environ, prog_name="packhouse")
    assert result.stdout.split() == ["plain,main", "plain,maint/1"]


def test_branches_are_listed_with_the_default_first(server: ScriptedServer) -> None:
    refs = {"branch_heads": {"a": "a" * 64, "main": "b" * 64}, "default_branch": "main", "repo_id": "r"}
    server.on("GET", "refs", answer(refs))
    assert run("ls-remote", server.url).stdout == f"{'b' * 64}\tmain\n{'a' * 64}\ta\n"
    said = json.loads(run("ls-remote", server.url, "--json").stdout)
    assert (said["branch_heads"], said["default_branch"]) == (refs["branch_heads"], "main")
    assert run("ls-remote", server.url, "-q").output == ""
