import os
from pathlib import Path

import pytest

from hub.client import workdir
from hub.client.cloning import clone
from hub.client.errors import ClientError, LocalConflict, NotReady, Refused, VerificationFailed
from hub.client.progress import Silent
from hub.client.transport import Remote
from hub.client.workdir import Workdir
from hub.records import object_id
from tests.hub.client.conftest import Clock
from tests.hub.client.packs import History, history
from tests.hub.client.scripted import Reply, ScriptedServer, answer

TREE = {"README": b"hello\n", "src/a": b"aaa", "src/b": b"hello\n", "empty": b"", "gr\u00fc\u00dfe": b"x" * 70_000}


def serve(server: ScriptedServer, told: History, branch: str = "main") -> None:
    server.on("POST", "fetch/mpack", answer(told.offer(f"{server.root}/pack", branch)))
    server.on("GET", "/pack", Reply(200, told.pack, ranged=True))


def files_of(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and ".packhouse" not in path.relative_to(root).parts
    }


def test_clone_equals_the_source(server: ScriptedServer, remote: Remote, tmp_path: Path) -> None:
    told = history({"old": b"1"}, TREE)
    serve(server, told)
    result = clone(remote, tmp_path / "notes", Silent())
    assert files_of(tmp_path / "notes") == TREE
    assert (result.head, result.commits, result.files) == (told.head, 2, 5)
    assert workdir.load(tmp_path / "notes") == Workdir(server.url, "main", told.head)
    assert workdir.pack_path(tmp_path / "notes", told.mpack_id).read_bytes() == told.pack
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


def test_clone_is_made_with_the_users_usual_modes(server: ScriptedServer, remote: Remote, tmp_path: Path) -> None:
    serve(server, history(TREE))
    clone(remote, tmp_path / "notes", Silent())
    (tmp_path / "usual").mkdir()
    assert (tmp_path / "notes").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_clone_waits_for_the_pack(server: ScriptedServer, remote: Remote, clock: Clock, tmp_path: Path) -> None:
    waiting = {"error": "MPACK_NOT_READY", "message": "Being made.", "why": []}
    server.on("POST", "fetch/mpack", answer(waiting, 503, Retry_After="2"))
    serve(server, history(TREE))
    clone(remote, tmp_path / "notes", Silent())
    assert clock.slept == [2.0]
    assert files_of(tmp_path / "notes") == TREE


def test_clone_that_waits_too_long_leaves_nothing(server: ScriptedServer, clock: Clock, tmp_path: Path) -> None:
    waiting = {"error": "MPACK_NOT_READY", "message": "Being made.", "why": []}
    server.on("POST", "fetch/mpack", answer(waiting, 503, Retry_After="2"))
    with Remote(server.url, timing=clock.timing(wait_seconds=5)) as remote, pytest.raises(NotReady):
        clone(remote, tmp_path / "notes", Silent())
    assert list(tmp_path.iterdir()) == []


def test_empty_repository_becomes_an_empty_clone(server: ScriptedServer, remote: Remote, tmp_path: Path) -> None:
    server.on("POST", "fetch/mpack", answer({"mpack_id": None, "url": None, "size": 0, "tips": {}}))
    result = clone(remote, tmp_path / "notes", Silent())
    assert result.head is None
    assert workdir.load(tmp_path / "notes") == Workdir(server.url, "main", None)
    assert files_of(tmp_path / "notes") == {}


def test_branch_that_is_not_there_is_refused_with_those_that_are(
    server: ScriptedServer, remote: Remote, tmp_path: Path
) -> None:
    serve(server, history(TREE))
    with pytest.raises(Refused, match="there are main"):
        clone(remote, tmp_path / "notes", Silent(), branch="next")
    assert list(tmp_path.iterdir()) == []


def test_asked_branch_is_written(server: ScriptedServer, remote: Remote, tmp_path: Path) -> None:
    told = history({"v": b"1"}, {"v": b"2"})
    offer = told.offer(f"{server.root}/pack") | {"tips": {"main": told.head, "old": told.commits[0].commit_id}}
    server.on("POST", "fetch/mpack", answer(offer))
    server.on("GET", "/pack", Reply(200, told.pack))
    clone(remote, tmp_path / "notes", Silent(), branch="old")
    assert files_of(tmp_path / "notes") == {"v": b"1"}
    assert workdir.load(tmp_path / "notes") == Workdir(server.url, "old", told.commits[0].commit_id)


def test_default_branch_that_is_not_there_falls_back_to_the_first(
    server: ScriptedServer, remote: Remote, tmp_path: Path
) -> None:
    told = history(TREE)
    server.on("POST", "fetch/mpack", answer(told.offer(f"{server.root}/pack", "next") | {"default_branch": "gone"}))
    server.on("GET", "/pack", Reply(200, told.pack))
    assert clone(remote, tmp_path / "notes", Silent()).branch == "next"


# --- a hub that is broken or hostile ------------------------------------------------------------


def incomplete() -> list[tuple[str, History]]:
    first, second = {"a": b"1"}, {"a": b"1", "b": b"2"}
    whole = history(first, second)
    return [
        ("object", history(first, second, leave_out=[object_id(b"2")])),
        ("snapshot", history(first, second, leave_out=[whole.snapshots[0].snapshot_id])),
        ("snapshot", history(first, second, leave_out=[whole.snapshots[1].snapshot_id])),
        ("commit", history(first, second, leave_out=[whole.commits[0].commit_id])),
        ("commit", history(first, second, leave_out=[whole.commits[1].commit_id])),
    ]


@pytest.mark.parametrize(("what", "told"), incomplete())
def test_incomplete_pack_is_refused_by_what_it_lacks(
    server: ScriptedServer, remote: Remote, tmp_path: Path, what: str, told: History
) -> None:
    serve(server, told)
    with pytest.raises(VerificationFailed, match=f"lacks {what}"):
        clone(remote, tmp_path / "notes", Silent())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "path",
    ["../evil", "/etc/evil", "a/../../evil", "a//b", ".", ".muse/config", "a/.muse/x", "nul\0byte", ""],
)
def test_path_that_leads_out_is_refused_and_nothing_written(
    server: ScriptedServer, remote: Remote, tmp_path: Path, path: str
) -> None:
    serve(server, history({path: b"evil", "ok": b"1"}))
    with pytest.raises(VerificationFailed):
        clone(remote, tmp_path / "notes", Silent())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "path", [".git/config", "sub/.git/hooks/post-checkout", ".packhouse/config.json", ".GIT/config", ".git "]
)
def test_configuration_of_tools_is_never_written(
    server: ScriptedServer, remote: Remote, tmp_path: Path, path: str
) -> None:
    told = history({path: b"evil", "ok": b"1"})
    serve(server, told)
    result = clone(remote, tmp_path / "notes", Silent())
    assert [item.path for item in result.skipped] == [path]
    assert files_of(tmp_path / "notes") == {"ok": b"1"}
    assert workdir.load(tmp_path / "notes") == Workdir(server.url, "main", told.head)


def test_link_that_appears_meanwhile_is_not_followed(server: ScriptedServer, remote: Remote, tmp_path: Path) -> None:
    outside, target = tmp_path / "outside", tmp_path / "in" / "notes"
    outside.mkdir()
    serve(server, history(TREE))

    class Intruder(Silent):
        def begin(self, what: str, *_: object) -> None:
            if what == "Unpacking":
                (building,) = target.parent.glob(".packhouse-*")
                (building / "src").symlink_to(outside)

    with pytest.raises(VerificationFailed, match="leads out"):
        clone(remote, target, Intruder())
    assert list(outside.iterdir()) == []
    assert list(target.parent.iterdir()) == []


def test_file_that_is_also_a_directory_is_refused(server: ScriptedServer, remote: Remote, tmp_path: Path) -> None:
    serve(server, history({"a": b"1", "a/b": b"2"}))
    with pytest.raises(VerificationFailed):
        clone(remote, tmp_path / "notes", Silent())
    assert list(tmp_path.iterdir()) == []


def test_damaged_pack_with_a_fitting_digest_is_refused(server: ScriptedServer, remote: Remote, tmp_path: Path) -> None:
    told = history(TREE)
    for at in range(0, len(told.pack), 37):
        pack = bytearray(told.pack)
        pack[at] ^= 0x40
        serve(server, History(bytes(pack), told.commits, told.snapshots))
        with pytest.raises(VerificationFailed):
            clone(remote, tmp_path / "notes", Silent())
        assert list(tmp_path.iterdir()) == []


def test_branch_name_that_cannot_be_is_refused(server: ScriptedServer, remote: Remote, tmp_path: Path) -> None:
    serve(server, history(TREE), branch="../../x")
    with pytest.raises(VerificationFailed, match="branch"):
        clone(remote, tmp_path / "notes", Silent())
    assert list(tmp_path.iterdir()) == []


def test_name_too_long_for_the_file_system_leaves_nothing(
    server: ScriptedServer, remote: Remote, tmp_path: Path
) -> None:
    serve(server, history({"x" * 300: b"1", "ok": b"2"}))
    with pytest.raises(LocalConflict, match="cannot be written"):
        clone(remote, tmp_path / "notes", Silent())
    assert list(tmp_path.iterdir()) == []


# --- a destination that exists ------------------------------------------------------------------


def test_directory_with_content_is_refused_before_anything_is_asked(
    server: ScriptedServer, remote: Remote, tmp_path: Path
) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine").write_bytes(b"mine")
    with pytest.raises(LocalConflict, match="not empty"):
        clone(remote, tmp_path / "notes", Silent())
    assert server.asked == []
    assert files_of(tmp_path) == {"notes/mine": b"mine"}


def test_file_in_the_place_of_the_directory_is_refused(server: ScriptedServer, remote: Remote, tmp_path: Path) -> None:
    (tmp_path / "notes").write_bytes(b"mine")
    with pytest.raises(LocalConflict, match="not a directory"):
        clone(remote, tmp_path / "notes", Silent(), force=True)
    assert (tmp_path / "notes").read_bytes() == b"mine"


def test_empty_directory_is_filled(
    server: ScriptedServer, remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(server, history(TREE))
    (tmp_path / "notes").mkdir()
    before = (tmp_path / "notes").stat().st_ino
    monkeypatch.chdir(tmp_path / "notes")
    clone(remote, Path(), Silent())
    assert files_of(tmp_path / "notes") == TREE
    assert (tmp_path / "notes").stat().st_ino == before
    assert sorted(path.name for path in Path(".packhouse").iterdir()) == ["config.json", "heads.json", "packs"]


def test_force_adds_what_is_missing_and_leaves_the_rest(server: ScriptedServer, remote: Remote, tmp_path: Path) -> None:
    serve(server, history(TREE))
    root = tmp_path / "notes"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a").write_bytes(b"aaa")
    (root / "mine").write_bytes(b"mine")
    before = (root / "src" / "a").stat()
    clone(remote, root, Silent(), force=True)
    assert files_of(root) == {**TREE, "mine": b"mine"}
    after = (root / "src" / "a").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_force_changes_nothing_when_one_file_differs(server: ScriptedServer, remote: Remote, tmp_path: Path) -> None:
    serve(server, history(TREE))
    root = tmp_path / "notes"
    root.mkdir()
    (root / "README").write_bytes(b"my own\n")
    with pytest.raises(LocalConflict, match="differ: README"):
        clone(remote, root, Silent(), force=True)
    assert files_of(tmp_path) == {"notes/README": b"my own\n"}
    assert not (root / ".packhouse").exists()


def test_force_does_not_write_through_a_link(server: ScriptedServer, remote: Remote, tmp_path: Path) -> None:
    serve(server, history(TREE))
    outside = tmp_path / "outside"
    outside.mkdir()
    root = tmp_path / "notes"
    root.mkdir()
    (root / "src").symlink_to(outside)
    (root / "README").symlink_to(outside / "README")
    with pytest.raises(LocalConflict, match=r"README.*src/a"):
        clone(remote, root, Silent(), force=True)
    assert list(outside.iterdir()) == []


def test_force_does_not_write_its_own_files_through_a_link(
    server: ScriptedServer, remote: Remote, tmp_path: Path
) -> None:
    serve(server, history(TREE))
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / ".packhouse").symlink_to(outside)
    with pytest.raises(LocalConflict, match=".packhouse"):
        clone(remote, tmp_path / "notes", Silent(), force=True)
    assert list(outside.iterdir()) == []


def test_force_refuses_the_clone_of_another_repository(server: ScriptedServer, remote: Remote, tmp_path: Path) -> None:
    serve(server, history(TREE))
    workdir.save(tmp_path, Workdir("http://127.0.0.1:1/bob/other", "main", None))
    with pytest.raises(LocalConflict, match="bob/other"):
        clone(remote, tmp_path, Silent(), force=True)
    assert files_of(tmp_path) == {}


def test_directory_that_appears_meanwhile_is_not_replaced(server: ScriptedServer, clock: Clock, tmp_path: Path) -> None:
    told = history(TREE)
    serve(server, told)

    class Intruder(Silent):
        def begin(self, what: str, *_: object) -> None:
            if what == "Unpacking":
                (tmp_path / "notes").mkdir()
                (tmp_path / "notes" / "mine").write_bytes(b"mine")

    with Remote(server.url, timing=clock.timing()) as remote, pytest.raises(ClientError):
        clone(remote, tmp_path / "notes", Intruder())
    assert files_of(tmp_path) == {"notes/mine": b"mine"}


@pytest.mark.parametrize("exists", [False, True])
def test_interrupted_clone_leaves_nothing(
    server: ScriptedServer, remote: Remote, tmp_path: Path, *, exists: bool
) -> None:
    class Interrupted(Silent):
        def begin(self, what: str, *_: object) -> None:
            if what == "Unpacking":
                raise KeyboardInterrupt

    serve(server, history(TREE))
    if exists:
        (tmp_path / "notes").mkdir()
    with pytest.raises(KeyboardInterrupt):
        clone(remote, tmp_path / "notes", Interrupted())
    assert [path.name for path in tmp_path.rglob("*")] == (["notes"] if exists else [])


def test_file_that_appears_meanwhile_is_not_overwritten(
    server: ScriptedServer, remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(server, history(TREE))
    root = tmp_path / "notes"
    root.mkdir()
    link = os.link

    def late(source: Path, place: Path) -> None:
        if not (root / "README").exists():
            (root / "README").write_bytes(b"mine")
        link(source, place)

    monkeypatch.setattr(os, "link", late)
    with pytest.raises(LocalConflict):
        clone(remote, root, Silent())
    assert (root / "README").read_bytes() == b"mine"
    assert workdir.load(root) is None


def test_file_system_without_hard_links_is_filled_too(
    server: ScriptedServer, remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: Path, place: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    serve(server, history(TREE))
    (tmp_path / "notes").mkdir()
    monkeypatch.setattr(os, "link", refuse)
    clone(remote, tmp_path / "notes", Silent())
    assert files_of(tmp_path / "notes") == TREE
