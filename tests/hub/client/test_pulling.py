import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hub.cli import packhouse
from hub.client import checkout, packs, update, workdir
from hub.client.difference import Blocked, plan
from hub.client.errors import LocalConflict, Refused
from hub.client.progress import Silent
from hub.client.pulling import PullResult, pull
from hub.client.pushing import Wish, push_directory
from hub.client.transport import Remote
from hub.client.workdir import Workdir
from hub.records import object_id
from tests.hub.client.packs import History, history, history_after
from tests.hub.client.scripted import Reply, ScriptedServer, answer
from tests.hub.client.test_cloning import files_of

FIRST = {"README": b"hello\n", "src/a": b"aaa", "src/b": b"bbb", "empty": b""}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(packhouse, [str(argument) for argument in arguments])


@pytest.fixture
def old() -> History:
    return history(FIRST)


@pytest.fixture
def copy(server: ScriptedServer, tmp_path: Path, old: History) -> Path:
    return cloned(tmp_path / "copy", server.url, old)


def cloned(root: Path, url: str, told: History, files: dict[str, bytes] = FIRST) -> Path:
    """A clone as `clone` leaves it."""
    root.mkdir()
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    workdir.save_heads(root, {"main": told.head})
    workdir.save(root, Workdir(url, "main", told.head))
    keep(root, told)
    return root


def keep(root: Path, told: History) -> None:
    place = workdir.pack_path(root, told.mpack_id)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(told.pack)


def offer(server: ScriptedServer, told: History) -> None:
    server.on("GET", "refs", answer({"branch_heads": {"main": told.head}}))
    server.on("POST", "fetch/mpack", answer(told.offer(f"{server.root}/pack")))
    server.on("GET", "/pack", Reply(200, told.pack))


def pulled(remote: Remote, root: Path, **options: Any) -> PullResult:
    return pull(remote, root, Silent(), **options)


def test_pull_brings_the_files_to_the_new_commit(
    server: ScriptedServer, remote: Remote, copy: Path, old: History
) -> None:
    tree = {"README": b"hello again\n", "src/a": b"aaa", "new/deep/x": b"new", "moved": b"bbb", "void": b""}
    new = history_after(old, tree)
    offer(server, new)
    result = pulled(remote, copy)
    assert files_of(copy) == tree
    assert (result.before, result.head, result.written, result.deleted) == (old.head, new.head, 4, 2)
    assert server.asked_for("fetch/mpack")[0].json == {"want": [new.head], "have": [old.head]}
    assert workdir.load(copy) == Workdir(server.url, "main", new.head)
    state = sorted(path.name for path in (copy / ".packhouse").iterdir())
    assert state == ["config.json", "heads.json", "packs"]


def test_directories_that_become_empty_go(server: ScriptedServer, remote: Remote, copy: Path, old: History) -> None:
    offer(server, history_after(old, {"README": b"hello\n"}))
    pulled(remote, copy)
    assert sorted(path.name for path in copy.iterdir()) == [".packhouse", "README"]


def test_untracked_files_and_changes_elsewhere_stay(
    server: ScriptedServer, remote: Remote, copy: Path, old: History
) -> None:
    (copy / "src" / "mine").write_bytes(b"mine")
    (copy / "README").write_bytes(b"my change\n")
    (copy / "empty").unlink()
    offer(server, history_after(old, FIRST | {"src/a": b"new"}))
    pulled(remote, copy)
    assert files_of(copy) == {"README": b"my change\n", "src/a": b"new", "src/b": b"bbb", "src/mine": b"mine"}


def test_modes_of_files_stay(server: ScriptedServer, remote: Remote, copy: Path, old: History) -> None:
    (copy / "src" / "a").chmod(0o750)
    offer(server, history_after(old, FIRST | {"src/a": b"new"}))
    pulled(remote, copy)
    assert (copy / "src" / "a").stat().st_mode & 0o777 == 0o750


def change(copy: Path) -> None:
    (copy / "src" / "a").write_bytes(b"mine")


def delete(copy: Path) -> None:
    (copy / "src" / "a").unlink()


def add(copy: Path) -> None:
    (copy / "new").write_bytes(b"mine")


def add_directory(copy: Path) -> None:
    (copy / "new").mkdir()
    (copy / "new" / "mine").write_bytes(b"mine")


def link(copy: Path) -> None:
    (copy / "new").symlink_to("README")


def link_directory(copy: Path) -> None:
    (copy / "elsewhere").mkdir()
    (copy / "deep").symlink_to("elsewhere")


def add_file_for_directory(copy: Path) -> None:
    (copy / "deep").write_bytes(b"mine")


def change_deleted(copy: Path) -> None:
    (copy / "src" / "b").write_bytes(b"mine")


@pytest.mark.parametrize(
    ("local", "path", "reason"),
    [
        (change, "src/a", "changed here"),
        (delete, "src/a", "deleted here"),
        (add, "new", "a file of your own is there"),
        (add_directory, "new", "a directory with files of your own is there"),
        (link, "new", "a symbolic link is there"),
        (link_directory, "deep/x", "«deep» is a symbolic link"),
        (add_file_for_directory, "deep/x", "«deep» is a file here"),
        (change_deleted, "src/b", "changed here"),
    ],
)
def test_local_change_that_would_be_lost_stops_the_pull(
    server: ScriptedServer, remote: Remote, copy: Path, old: History, local: Any, path: str, reason: str
) -> None:
    tree = {"README": b"hello again\n", "src/a": b"new", "new": b"new", "deep/x": b"x", "empty": b""}
    offer(server, history_after(old, tree))
    local(copy)
    before = files_of(copy)
    with pytest.raises(Blocked) as caught:
        pulled(remote, copy)
    assert caught.value.details["conflicts"] == [{"path": path, "reason": reason}]
    assert files_of(copy) == before
    assert workdir.load(copy) == Workdir(server.url, "main", old.head)


def test_same_change_here_and_there_is_no_conflict(
    server: ScriptedServer, remote: Remote, copy: Path, old: History
) -> None:
    tree = FIRST | {"src/a": b"new", "new": b"new"}
    (copy / "src" / "a").write_bytes(b"new")
    (copy / "new").write_bytes(b"new")
    offer(server, history_after(old, tree))
    assert pulled(remote, copy).written == 0
    assert files_of(copy) == tree


def test_file_becomes_a_directory_and_back(server: ScriptedServer, remote: Remote, copy: Path, old: History) -> None:
    second = history_after(old, {"README/inside": b"1", "src": b"file"})
    offer(server, second)
    pulled(remote, copy)
    assert files_of(copy) == {"README/inside": b"1", "src": b"file"}


def test_interrupted_pull_is_finished_by_the_next(
    server: ScriptedServer, remote: Remote, copy: Path, old: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = {"README": b"hello again\n", "src/a": b"new", "src/c": b"ccc"}
    new = history_after(old, tree)
    offer(server, new)
    put = update._put
    calls: list[str] = []

    def broken(root: Path, change: Any, content: Path) -> None:
        calls.append(change.path)
        if len(calls) == 2:
            raise KeyboardInterrupt
        put(root, change, content)

    monkeypatch.setattr(update, "_put", broken)
    with pytest.raises(KeyboardInterrupt):
        pulled(remote, copy)
    half = files_of(copy)
    assert half not in (FIRST, tree)
    with pytest.raises(LocalConflict, match="interrupted"):
        push_directory(remote, Wish(copy, "half"), Silent())
    monkeypatch.undo()
    pulled(remote, copy)
    assert files_of(copy) == tree
    assert workdir.load_pending(copy) is None
    assert not [path for path in (copy / ".packhouse").iterdir() if path.name.startswith("pull-")]


def test_interrupted_pull_is_finished_though_the_branch_has_moved_on(
    server: ScriptedServer, remote: Remote, copy: Path, old: History
) -> None:
    middle = history_after(old, FIRST | {"src/a": b"middle", "src/m": b"m"})
    keep(copy, middle)
    workdir.save_pending(copy, middle.head)
    (copy / "src" / "a").write_bytes(b"middle")
    (copy / "src" / "m").write_bytes(b"m")
    offer(server, history_after(middle, FIRST))
    pulled(remote, copy)
    assert files_of(copy) == FIRST


def test_file_that_changes_during_the_update_is_kept(
    server: ScriptedServer, remote: Remote, copy: Path, old: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = FIRST | {"README": b"new\n", "src/a": b"new"}
    offer(server, history_after(old, tree))
    put = update._put

    def meanwhile(root: Path, change: Any, content: Path) -> None:
        put(root, change, content)
        (copy / "src" / "a").write_bytes(b"mine, just now")

    monkeypatch.setattr(update, "_put", meanwhile)
    with pytest.raises(LocalConflict, match="«src/a» was changed while"):
        pulled(remote, copy)
    assert (copy / "src" / "a").read_bytes() == b"mine, just now"
    monkeypatch.undo()
    with pytest.raises(Blocked):
        pulled(remote, copy)


def test_replaced_branch_is_followed_by_force_only(
    server: ScriptedServer, remote: Remote, copy: Path, old: History
) -> None:
    other = history({"README": b"other\n"}, message="other")
    offer(server, other)
    with pytest.raises(Refused, match="was replaced"):
        pulled(remote, copy)
    assert files_of(copy) == FIRST
    (copy / "README").write_bytes(b"mine\n")
    with pytest.raises(Blocked):
        pulled(remote, copy, force=True)
    (copy / "README").write_bytes(b"hello\n")
    pulled(remote, copy, force=True)
    assert files_of(copy) == {"README": b"other\n"}


def test_content_that_is_only_in_the_files_is_taken_from_there(
    server: ScriptedServer, remote: Remote, copy: Path, old: History
) -> None:
    """A directory that was pushed keeps its commit, not the objects."""
    workdir.pack_path(copy, old.mpack_id).unlink()
    keep(copy, history(FIRST, leave_out=[object_id(content) for content in FIRST.values()]))
    new = history_after(old, FIRST | {"copied": b"bbb"})
    offer(server, new)
    pulled(remote, copy)
    assert (copy / "copied").read_bytes() == b"bbb"
    assert len(server.asked_for("fetch/mpack")) == 1


def test_content_that_is_nowhere_here_is_asked_for(
    server: ScriptedServer, remote: Remote, copy: Path, old: History
) -> None:
    workdir.pack_path(copy, old.mpack_id).unlink()
    keep(copy, history(FIRST, leave_out=[object_id(content) for content in FIRST.values()]))
    (copy / "src" / "b").write_bytes(b"my change")
    tree = FIRST | {"copied": b"bbb"}
    whole = history(FIRST, tree)
    new = history(tree, leave_out=list(old.snapshots[0].manifest.values()), parent=old.head, start=1)
    assert new.head == whole.head
    server.on("GET", "refs", answer({"branch_heads": {"main": new.head}}))
    offers = (answer(new.offer(f"{server.root}/pack")), answer(whole.offer(f"{server.root}/whole")))
    server.on("POST", "fetch/mpack", *offers)
    server.on("GET", "/pack", Reply(200, new.pack))
    server.on("GET", "/whole", Reply(200, whole.pack))
    pulled(remote, copy)
    assert server.asked_for("fetch/mpack")[1].json == {"want": [new.head], "have": []}
    assert files_of(copy) == tree | {"src/b": b"my change"}


def test_branch_that_is_gone_is_refused(server: ScriptedServer, remote: Remote, copy: Path, old: History) -> None:
    server.on("GET", "refs", answer({"branch_heads": {"next": old.head}}))
    with pytest.raises(Refused, match="no branch «main» any more; there are next"):
        pulled(remote, copy)


def test_empty_clone_of_an_empty_repository_is_up_to_date(
    server: ScriptedServer, remote: Remote, tmp_path: Path
) -> None:
    root = tmp_path / "copy"
    root.mkdir()
    workdir.save(root, Workdir(server.url, "main", None))
    server.on("GET", "refs", answer({"branch_heads": {}}))
    assert pulled(remote, root).up_to_date


def test_files_of_configuration_that_programs_obey_are_not_written(
    server: ScriptedServer, remote: Remote, copy: Path, old: History
) -> None:
    offer(server, history_after(old, FIRST | {".git/hooks/post-checkout": b"evil", "x": b"x"}))
    pulled(remote, copy)
    assert not (copy / ".git").exists()
    assert (copy / "x").exists()


def test_pull_says_what_it_did(server: ScriptedServer, copy: Path, old: History) -> None:
    new = history_after(old, {"README": b"hello\n", "src/a": b"new"})
    offer(server, new)
    result = run("pull", copy)
    assert result.stdout.startswith(f"main is now {new.head} (1 file written, 2 deleted; 1 commit, ")
    assert run("pull", copy).stdout == "Everything up to date\n"
    said = json.loads(run("pull", copy, "--json").stdout)
    assert (said["ok"], said["up_to_date"], said["head"]) == (True, True, new.head)


def test_conflicts_are_listed_under_json(server: ScriptedServer, copy: Path, old: History) -> None:
    (copy / "README").write_bytes(b"mine")
    offer(server, history_after(old, {"x": b"x"}))
    result = run("pull", copy, "--json")
    said = json.loads(result.stdout)
    assert (result.exit_code, said["error"]) == (1, "LOCAL_CONFLICT")
    assert said["conflicts"] == [{"path": "README", "reason": "changed here"}]


# --- whatever was done here -----------------------------------------------------------------------

PATHS = st.sampled_from(["a", "b", "a/x", "b/y", "c/d/e", "c"])
CONTENT = st.sampled_from([b"", b"1", b"2"])


def without_clashes(tree: dict[str, bytes]) -> dict[str, bytes]:
    return {path: tree[path] for path in tree if not any(other.startswith(f"{path}/") for other in tree)}


TREES = st.dictionaries(PATHS, CONTENT, max_size=5).map(without_clashes)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(TREES, TREES, TREES)
def test_an_update_either_succeeds_or_touches_nothing_and_never_loses_a_change(
    tmp_path: Path, first: dict[str, bytes], second: dict[str, bytes], local: dict[str, bytes]
) -> None:
    root = tmp_path / os.urandom(8).hex()
    old = history(first)
    cloned(root, "http://127.0.0.1:1/ada/notes", old, local)
    new = history_after(old, second)
    keep(root, new)
    base, target = old.snapshots[0].manifest, new.snapshots[0].manifest
    changes, conflicts = plan(root, [base], target)
    if conflicts:
        return
    with update.staging(root) as folder:
        assert update.gather(root, folder, {change.after for change in changes if change.after}, base) == set()
        update.apply(root, folder, changes, Silent())
    after = files_of(root)
    for path in {*first, *second, *local}:
        if first.get(path) != second.get(path):
            assert after.get(path) == second.get(path), path
        else:
            assert after.get(path) == local.get(path), path
    assert all(local[path] in (first.get(path), second.get(path)) for path in local if after.get(path) != local[path])


def test_names_that_differ_by_case_are_written_where_the_file_system_tells_them_apart(
    server: ScriptedServer, remote: Remote, copy: Path, old: History
) -> None:
    offer(server, history_after(old, FIRST | {"Readme": b"1", "readme": b"2"}))
    pulled(remote, copy)
    assert ((copy / "Readme").read_bytes(), (copy / "readme").read_bytes()) == (b"1", b"2")


def test_names_that_the_file_system_takes_for_one_stop_the_pull(
    server: ScriptedServer, remote: Remote, copy: Path, old: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = checkout.Files._place
    monkeypatch.setattr(checkout.Files, "_place", lambda files, path: place(files, path.casefold()))
    offer(server, history_after(old, FIRST | {"Readme": b"1", "readme": b"2"}))
    with pytest.raises(LocalConflict, match="takes it for another path"):
        pulled(remote, copy)
    assert files_of(copy) == FIRST
    assert workdir.load(copy) == Workdir(server.url, "main", old.head)


def test_packs_of_an_interrupted_fetch_do_not_count(copy: Path, old: History) -> None:
    (copy / ".packhouse" / "packs" / "half.tmp").write_bytes(b"half")
    assert packs.read_commits(copy).keys() == {old.head}
