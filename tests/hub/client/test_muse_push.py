"""A Muse working copy is pushed as it is: to the real hub, and back out of it by both transports."""

import json
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest
from click.testing import CliRunner, Result

from hub.cli import packhouse
from hub.client.cloning import clone
from hub.client.errors import BadInput, Refused
from hub.client.muse_pushing import MusePushResult, push_muse
from hub.client.muse_store import MuseStore
from hub.client.progress import Silent
from hub.client.transport import Remote
from hub.records import parse_commit
from tests.hub.client.muse_repo import write_muse
from tests.hub.client.test_cloning import files_of
from tests.hub.client.test_push_clone import served
from tests.hub.world import History, World

pytestmark = pytest.mark.integration

TREE = {"a": b"1", "d/\u00e4 \u00f6": b"umlauts", "empty": b"", "big": b"x" * 100_000}


@pytest.fixture
def remote(world: World) -> Iterator[Remote]:
    with served(world) as address, Remote(address, world.token) as remote:
        yield remote


def push(remote: Remote, root: Path, branch: str | None = None, *, force: bool = False) -> MusePushResult:
    return push_muse(remote, root, Silent(), branch=branch, force=force)


def merged(history: History) -> str:
    """Two branches and their merge, a commit without a change, a message that is empty."""
    first = history.commit(TREE, message="")
    side = history.commit(TREE | {"side": b"s"}, first, branch="dev", author="Ada")
    main = history.commit(TREE | {"a": b"2"}, first, metadata={"emotion": "calm"})
    merge = history.commit(TREE | {"a": b"2", "side": b"s"}, main, side)
    delta = {"domain": "code", "ops": [{"op": "insert", "position": None}], "summary": "1 added file"}
    return history.commit(TREE | {"a": b"2", "side": b"s"}, merge, structured_delta=delta, test_runs=3)


def test_commits_arrive_as_they_are(world: World, remote: Remote, history: History, tmp_path: Path) -> None:
    head = merged(history)
    root = write_muse(tmp_path / "w", history, main=head)
    result = push(remote, root)
    assert (result.commit_id, result.commits_sent) == (head, 5)
    assert world.heads() == {"main": head}
    world.drain()
    clone(remote, tmp_path / "copy", Silent())
    assert files_of(tmp_path / "copy") == TREE | {"a": b"2", "side": b"s"}
    answer = world.post("/fetch", {"want": [head], "have": []}, muse=True)
    got = {record["commit_id"]: record for record in msgpack.unpackb(answer.data)["commits"]}
    for commit_id, sent in history.commits.items():
        assert {**got[commit_id], "structured_delta": None} == {**sent, "structured_delta": None}


def test_record_is_the_same_bytes_as_the_muse_client_sends(history: History, tmp_path: Path) -> None:
    head = merged(history)
    commit = MuseStore(write_muse(tmp_path / "w", history, main=head)).commit(head)
    assert commit is not None
    assert commit.raw == parse_commit(history.commits[head]).raw


def test_only_what_the_hub_lacks_is_sent(world: World, remote: Remote, history: History, tmp_path: Path) -> None:
    first = history.line(3)
    root = write_muse(tmp_path / "w", history, main=first[-1])
    push(remote, root)
    second = history.line(2, start=3, parent=first[-1])
    write_muse(root, history, main=second[-1])
    result = push(remote, root)
    assert (result.commits_sent, result.objects_sent) == (2, 2)
    assert push(remote, root).up_to_date


def test_new_branch_at_a_known_commit(world: World, remote: Remote, history: History, tmp_path: Path) -> None:
    ids = history.line(3)
    root = write_muse(tmp_path / "w", history, main=ids[-1], feature__x=ids[1])
    push(remote, root)
    assert push(remote, root, "feature/x").objects_sent == 0
    assert world.heads() == {"main": ids[-1], "feature/x": ids[1]}


def test_branch_with_other_commits_is_refused_then_replaced_by_force(
    world: World, remote: Remote, history: History, tmp_path: Path
) -> None:
    ids = history.line(2)
    theirs = history.commit({"theirs": b"1"}, ids[0])
    assert world.push_mpack(history, theirs).status_code == 200
    root = write_muse(tmp_path / "w", history, main=ids[1])
    with pytest.raises(Refused, match="muse pull"):
        push(remote, root)
    assert world.heads() == {"main": theirs}
    push(remote, root, force=True)
    assert world.heads() == {"main": ids[1]}


def test_what_the_muse_client_has_pushed_is_not_sent_again(
    world: World, remote: Remote, history: History, tmp_path: Path
) -> None:
    ids = history.line(3)
    assert world.push_muse(history, ids[1]).status_code == 200
    assert push(remote, write_muse(tmp_path / "w", history, main=ids[2])).commits_sent == 1


@pytest.mark.parametrize(
    ("what", "sentence"),
    [("objects", "lacks object"), ("snapshots", "lacks snapshot"), ("commits", "lacks commit")],
)
def test_damaged_repository_is_named(
    world: World, remote: Remote, history: History, tmp_path: Path, what: str, sentence: str
) -> None:
    head = history.commit({"a": b"1"})
    root = write_muse(tmp_path / "w", history, main=head)
    for path in (root / ".muse" / what).rglob("*"):
        if path.is_file():
            path.unlink()
    with pytest.raises(BadInput, match=sentence):
        push(remote, root)
    assert world.heads() == {}


@pytest.mark.parametrize("change", [{"message": "other"}, {"committed_at": "2026-03-24T12:00:00Z"}, {"branch": 5}])
def test_record_that_is_not_its_id_is_refused(
    world: World, remote: Remote, history: History, tmp_path: Path, change: dict[str, object]
) -> None:
    head = history.commit({"a": b"1"})
    root = write_muse(tmp_path / "w", history, main=head)
    (root / ".muse" / "commits" / f"{head}.json").write_text(json.dumps(history.commits[head] | change))
    with pytest.raises(BadInput, match=rf"commits/{head}"):
        push(remote, root)


def test_detached_head_needs_a_branch(world: World, remote: Remote, history: History, tmp_path: Path) -> None:
    head = history.commit({"a": b"1"})
    root = write_muse(tmp_path / "w", history, main=head)
    (root / ".muse" / "HEAD").write_text(f"commit: {head}\n")
    with pytest.raises(BadInput, match="--branch"):
        push(remote, root)
    assert push(remote, root, "main").commit_id == head
    with pytest.raises(BadInput, match="no commit on a branch «other»"):
        push(remote, root, "other")


def test_command_pushes_to_the_working_copys_own_remote(
    world: World, history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = history.commit({"a": b"1"})
    with served(world) as address:
        root = write_muse(tmp_path / "w", history, url=address, main=head)
        before = files_of(root)
        (root / "deep").mkdir()
        monkeypatch.chdir(root / "deep")
        said = run(world, "push")
        assert said.stdout.startswith(f"main is now {head} (1 commit; 1 new object, ")
        assert json.loads(run(world, "push", "--json").stdout)["up_to_date"] is True
        assert files_of(root) == before
        refused = run(world, "push", "-m", "no")
        assert (refused.exit_code, "leave -m out" in refused.stderr) == (2, True)


def run(world: World, *arguments: str) -> Result:
    return CliRunner().invoke(packhouse, list(arguments), env={"PACKHOUSE_TOKEN": world.token})
