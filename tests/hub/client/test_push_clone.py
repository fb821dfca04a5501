"""The client against the real hub: Postgres, the S3 server, HTTP, a worker's pass."""

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from werkzeug.serving import make_server

from hub.cli import packhouse
from hub.client import upload, workdir
from hub.client.cloning import clone
from hub.client.errors import LocalConflict, NotReady, Refused
from hub.client.follow import await_prebuilt
from hub.client.log import local_log
from hub.client.patience import Timing
from hub.client.progress import Silent
from hub.client.pulling import pull
from hub.client.pushing import PushResult, Wish, push_directory
from hub.client.transport import Remote
from hub.client.tree import read_tree
from storage import Prefixed, Store
from tests.hub.client.scripted import silent_handler
from tests.hub.world import History, World

pytestmark = pytest.mark.integration


@contextmanager
def served(world: World) -> Iterator[str]:
    """The world's hub on a port of this machine; the address of alice/data."""
    server = make_server("127.0.0.1", 0, world.app, threaded=True, request_handler=silent_handler())
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/alice/data"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def hub(new_world: Callable[..., World], s3_store: Store) -> World:
    """A hub on the real S3 server: the client uploads to it and downloads from it directly."""
    return new_world(archive=Prefixed(s3_store, "archive/"), cache=Prefixed(s3_store, "cache/"))


@pytest.fixture
def url(hub: World) -> Iterator[str]:
    with served(hub) as address:
        yield address


@pytest.fixture
def remote(hub: World, url: str) -> Iterator[Remote]:
    with Remote(url, hub.token, timing=Timing(wait_seconds=20)) as remote:
        yield remote


def push(remote: Remote, directory: Path, **wished: Any) -> PushResult:
    return push_directory(remote, Wish(directory, "A message", **wished), Silent())


def same(one: Path, other: Path) -> bool:
    return read_tree(one).manifest == read_tree(other).manifest


def numbered(root: Path, count: int) -> Path:
    for number in range(count):
        path = root / f"d{number % 20:02}" / f"f{number:05}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"file {number}\n" * (1 + number % 50))
    return root


def test_pushed_directory_is_cloned_byte_for_byte(hub: World, remote: Remote, work: Path, tmp_path: Path) -> None:
    pushed = push(remote, work, author="Ada")
    hub.drain()
    cloned = clone(remote, tmp_path / "copy", Silent())
    assert cloned.head == pushed.commit_id
    assert cloned.files == 5
    assert same(work, tmp_path / "copy")
    assert (tmp_path / "copy" / "empty").read_bytes() == b""


def test_bytes_go_straight_to_the_store_and_back(
    hub: World, remote: Remote, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links: list[str] = []
    fetch_mpack, presign = remote.fetch_mpack, remote.presign

    def presigned(*arguments: Any) -> Any:
        answer = presign(*arguments)
        links.append(answer.upload.url if answer.upload else "")
        return answer

    def offered(*arguments: Any) -> Any:
        answer = fetch_mpack(*arguments)
        links.append(answer.url or "")
        return answer

    monkeypatch.setattr("hub.wire.muse.INLINE_BYTES", 0)
    monkeypatch.setattr(remote, "presign", presigned)
    monkeypatch.setattr(remote, "fetch_mpack", offered)
    push(remote, work)
    hub.drain()
    clone(remote, tmp_path / "copy", Silent())
    assert ["X-Amz-Signature" in link for link in links] == [True, True]


def test_hub_that_cannot_presign_moves_the_bytes_itself(
    new_world: Callable[..., World], work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hub.wire.muse.INLINE_BYTES", 0)
    world = new_world()
    with served(world) as address, Remote(address, world.token) as remote:
        push(remote, work)
        world.drain()
        clone(remote, tmp_path / "copy", Silent())
    assert same(work, tmp_path / "copy")


def test_killed_push_goes_on_when_it_is_run_again(
    new_world: Callable[..., World], s3_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three parts; the client dies after one. The second run makes the same pack and sends the other two."""
    hub = new_world(archive=Prefixed(s3_store, "archive/"), multipart_bytes=1_000_000, part_bytes=5 * 1024 * 1024)
    work = tmp_path / "work"
    work.mkdir()
    for number in range(3):
        (work / f"f{number}").write_bytes(os.urandom(4_000_000))
    monkeypatch.setattr("hub.client.upload.PARTS_AT_ONCE", 1)
    send_once = upload._send_once
    sent: list[int] = []

    def dying(http: Any, link: Any, body: Any, size: int) -> None:
        if len(sent) == 1:
            raise KeyboardInterrupt
        sent.append(size)
        send_once(http, link, body, size)

    with served(hub) as address, Remote(address, hub.token) as remote:
        monkeypatch.setattr(upload, "_send_once", dying)
        with pytest.raises(KeyboardInterrupt):
            push(remote, work)
        sent.clear()
        monkeypatch.setattr(upload, "_send_once", lambda *given: (sent.append(given[3]), send_once(*given)))
        pushed = push(remote, work)
    assert len(sent) == 2
    assert sum(sent) == pushed.bytes_sent - 5 * 1024 * 1024
    assert hub.heads() == {"main": pushed.commit_id}
    assert not (work / ".packhouse" / "pushing.json").exists()


def test_second_push_sends_only_what_is_new(hub: World, remote: Remote, work: Path, tmp_path: Path) -> None:
    first = push(remote, work)
    (work / "README").write_bytes(b"hello again\n")
    (work / "same").unlink()
    second = push(remote, work)
    assert (second.parent, second.objects_sent, second.files) == (first.commit_id, 1, 4)
    hub.drain()
    cloned = clone(remote, tmp_path / "copy", Silent())
    assert (cloned.head, cloned.commits) == (second.commit_id, 2)
    assert same(work, tmp_path / "copy")


def test_push_of_the_same_files_is_up_to_date(hub: World, remote: Remote, work: Path) -> None:
    first = push(remote, work)
    again = push(remote, work)
    assert again.up_to_date
    assert again.commit_id == first.commit_id
    assert hub.heads() == {"main": first.commit_id}


def test_commit_without_a_change_is_made_when_asked_for(hub: World, remote: Remote, work: Path) -> None:
    first = push(remote, work)
    second = push(remote, work, allow_empty=True)
    assert (second.parent, second.objects_sent) == (first.commit_id, 0)
    assert hub.heads() == {"main": second.commit_id}


def test_clone_is_changed_and_pushed_back(hub: World, remote: Remote, work: Path, tmp_path: Path) -> None:
    push(remote, work)
    hub.drain()
    clone(remote, tmp_path / "copy", Silent())
    (tmp_path / "copy" / "new").write_bytes(b"new")
    second = push(remote, tmp_path / "copy")
    hub.drain()
    clone(remote, tmp_path / "third", Silent())
    assert same(tmp_path / "copy", tmp_path / "third")
    assert hub.heads() == {"main": second.commit_id}


def test_clone_that_is_behind_is_refused_then_replaces_by_force(
    hub: World, remote: Remote, work: Path, tmp_path: Path
) -> None:
    push(remote, work)
    hub.drain()
    clone(remote, tmp_path / "copy", Silent())
    (work / "README").write_bytes(b"theirs\n")
    theirs = push(remote, work)
    (tmp_path / "copy" / "README").write_bytes(b"mine\n")
    with pytest.raises(Refused, match="has moved"):
        push(remote, tmp_path / "copy")
    assert hub.heads() == {"main": theirs.commit_id}
    mine = push(remote, tmp_path / "copy", force=True)
    assert hub.heads() == {"main": mine.commit_id}


def test_two_clones_work_in_turns(hub: World, remote: Remote, work: Path, tmp_path: Path) -> None:
    push(remote, work)
    hub.drain()
    one, other = tmp_path / "one", tmp_path / "other"
    clone(remote, one, Silent())
    clone(remote, other, Silent())
    for number in range(3):
        (one / f"file{number}").write_bytes(b"%d" % number)
        (one / "README").unlink(missing_ok=True)
        pushed = push(remote, one)
        hub.drain()
        pulled = pull(remote, other, Silent())
        assert (pulled.head, pulled.fetched.commits) == (pushed.commit_id, 1)
        assert same(one, other)
        (other / "same").write_bytes(b"turn %d" % number)
        push(remote, other)
        hub.drain()
        assert pull(remote, one, Silent()).written == 1
        assert same(one, other)
    assert [entry.message for entry in local_log(one, None, 100).entries] == ["A message"] * 7


def test_pull_brings_the_difference_only(hub: World, remote: Remote, tmp_path: Path) -> None:
    source = numbered(tmp_path / "source", 200)
    whole = push(remote, source).bytes_sent
    hub.drain()
    clone(remote, tmp_path / "copy", Silent())
    (source / "new").write_bytes(b"new")
    push(remote, source)
    hub.drain()
    assert pull(remote, tmp_path / "copy", Silent()).fetched.bytes_received < whole / 2
    assert same(source, tmp_path / "copy")


def test_branch_that_moves_during_the_push_is_a_conflict(
    hub: World, remote: Remote, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(remote, work)
    other = numbered(tmp_path / "other", 3)
    send_along = remote.push_inline
    theirs: list[PushResult] = []

    def slow(*arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(remote, "push_inline", send_along)
        theirs.append(push(remote, other))
        return send_along(*arguments, **named)

    monkeypatch.setattr(remote, "push_inline", slow)
    (work / "README").write_bytes(b"mine\n")
    before = workdir.load(work)
    with pytest.raises(Refused) as caught:
        push(remote, work)
    assert caught.value.status == 409
    assert hub.heads() == {"main": theirs[0].commit_id}
    assert workdir.load(work) == before


def test_push_whose_answer_is_lost_is_repeated_without_a_second_commit(
    hub: World, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection breaks after the hub has done its work: the client asks the same again."""
    calls: list[int] = []
    wsgi = hub.app.wsgi_app

    def breaking(environ: dict[str, Any], start_response: Any) -> Any:
        if environ["PATH_INFO"].endswith("/push/mpack"):
            calls.append(1)
            if len(calls) == 1:
                b"".join(wsgi(environ, lambda *_: list[bytes]().append))
                start_response("502 Bad Gateway", [("Content-Length", "0")])
                return [b""]
        return wsgi(environ, start_response)

    monkeypatch.setattr(hub.app, "wsgi_app", breaking)
    timing = Timing(sleep=lambda _: None)
    with served(hub) as address, Remote(address, hub.token, timing=timing) as remote:
        pushed = push(remote, work)
    assert len(calls) == 2
    assert hub.heads() == {"main": pushed.commit_id}


def test_clone_before_the_work_is_done_names_the_job(hub: World, url: str, work: Path, tmp_path: Path) -> None:
    with Remote(url, hub.token, timing=Timing(wait_seconds=0)) as remote:
        push(remote, work)
        with pytest.raises(NotReady) as caught:
            clone(remote, tmp_path / "copy", Silent())
    assert {job.task for job in caught.value.why} & {"mpack.index", "fetch.mpack.prebuild"}
    assert not (tmp_path / "copy").exists()


def test_clone_waits_until_the_work_is_done(hub: World, url: str, work: Path, tmp_path: Path) -> None:
    slept: list[float] = []

    def work_meanwhile(seconds: float) -> None:
        slept.append(seconds)
        hub.drain()

    with Remote(url, hub.token, timing=Timing(sleep=work_meanwhile)) as remote:
        push(remote, work)
        clone(remote, tmp_path / "copy", Silent())
    assert len(slept) == 1
    assert same(work, tmp_path / "copy")


def test_push_is_followed_until_clones_can_have_it(hub: World, remote: Remote, work: Path) -> None:
    pushed = push(remote, work)
    assert pushed.push_id is not None
    assert remote.push_status(pushed.push_id).status == "received"
    hub.drain()
    assert await_prebuilt(remote, pushed.push_id, Silent()).status == "prebuilt"


def test_empty_repository_is_cloned_filled_and_pushed(hub: World, remote: Remote, tmp_path: Path) -> None:
    result = clone(remote, tmp_path / "copy", Silent())
    assert result.head is None
    (tmp_path / "copy" / "first").write_bytes(b"1")
    pushed = push(remote, tmp_path / "copy")
    assert hub.heads() == {"main": pushed.commit_id}


def test_every_branch_can_be_cloned(hub: World, remote: Remote, work: Path, tmp_path: Path) -> None:
    push(remote, work)
    (work / "README").write_bytes(b"next\n")
    next_head = push(remote, work, branch="feature/next")
    hub.drain()
    clone(remote, tmp_path / "main", Silent())
    clone(remote, tmp_path / "next", Silent(), branch="feature/next")
    assert (tmp_path / "main" / "README").read_bytes() == b"hello\n"
    assert (tmp_path / "next" / "README").read_bytes() == b"next\n"
    assert workdir.load(tmp_path / "next") == workdir.Workdir(remote.url, "feature/next", next_head.commit_id)


def test_directory_without_files_is_pushed_and_cloned(hub: World, remote: Remote, tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    pushed = push(remote, tmp_path / "bare")
    hub.drain()
    cloned = clone(remote, tmp_path / "copy", Silent())
    assert (cloned.head, cloned.files) == (pushed.commit_id, 0)


def test_thousand_files_come_back_equal(hub: World, remote: Remote, tmp_path: Path) -> None:
    source = numbered(tmp_path / "source", 1_000)
    pushed = push(remote, source)
    assert pushed.files == 1_000
    hub.drain()
    cloned = clone(remote, tmp_path / "copy", Silent())
    assert cloned.files == 1_000
    assert same(source, tmp_path / "copy")


def test_objects_that_lie_in_another_order_than_their_paths_come_back_equal(
    world: World, history: History, tmp_path: Path
) -> None:
    """Another client's pack, its blocks full and wanted whole: the hub copies them as they lie."""
    tree = {f"f{number:03}": hashlib.shake_256(bytes([number])).digest(9_000) for number in range(120)}
    assert world.push_mpack(history, history.commit(tree)).status_code == 200
    world.drain()
    with served(world) as address, Remote(address, timing=Timing(wait_seconds=0)) as remote:
        clone(remote, tmp_path / "copy", Silent())
    assert {name: (tmp_path / "copy" / name).read_bytes() for name in tree} == tree


def test_large_incompressible_files_come_back_equal(hub: World, remote: Remote, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for number in range(3):
        seed = hashlib.shake_256(bytes([number])).digest(5_000_000 + number)
        (source / f"large{number}.bin").write_bytes(seed)
    push(remote, source)
    hub.drain()
    clone(remote, tmp_path / "copy", Silent())
    assert same(source, tmp_path / "copy")


@pytest.mark.parametrize(
    ("user", "status"), [(None, 401), ("wrong", 401), ("mallory", 403)], ids=["anonymous", "wrong token", "no right"]
)
def test_push_without_the_right_is_refused_with_a_sentence(
    hub: World, url: str, work: Path, user: str | None, status: int
) -> None:
    token = hub.user("mallory") if user == "mallory" else user
    with Remote(url, token) as remote, pytest.raises(Refused) as caught:
        push(remote, work)
    assert caught.value.status == status
    assert hub.heads() == {}


def test_private_repository_is_not_there_for_strangers(hub: World, url: str, work: Path, tmp_path: Path) -> None:
    hub.repository("alice/secret", private=True)
    secret = url.replace("/alice/data", "/alice/secret")
    with Remote(secret, hub.token) as remote:
        push(remote, work)
        hub.drain()
        clone(remote, tmp_path / "mine", Silent())
    with Remote(secret, None) as remote, pytest.raises(Refused) as caught:
        clone(remote, tmp_path / "theirs", Silent())
    assert caught.value.status == 404
    assert same(work, tmp_path / "mine")


def test_pack_above_the_limit_is_refused_before_it_is_uploaded(new_world: Callable[..., World], work: Path) -> None:
    world = new_world(max_mpack_bytes=100)
    with served(world) as address, Remote(address, world.token) as remote, pytest.raises(Refused) as caught:
        push(remote, work)
    assert caught.value.status == 413
    assert list(world.archive.list()) == []


def test_commands_push_and_clone(hub: World, url: str, work: Path, tmp_path: Path) -> None:
    environ = {"PACKHOUSE_TOKEN": hub.token}
    pushed = CliRunner().invoke(packhouse, ["push", str(work), url, "-m", "one"], env=environ)
    assert pushed.exit_code == 0, pushed.output
    hub.drain()
    cloned = CliRunner().invoke(packhouse, ["clone", url, str(tmp_path / "copy")], env=environ)
    assert cloned.exit_code == 0, cloned.output
    assert same(work, tmp_path / "copy")
    again = CliRunner().invoke(packhouse, ["clone", url, str(tmp_path / "copy")], env=environ)
    assert again.exit_code == LocalConflict.exit_code
    assert hub.token not in pushed.output + cloned.output + again.output


def test_login_then_a_repository_made_filled_and_read(hub: World, url: str, work: Path, tmp_path: Path) -> None:
    """A user with nothing but a token: no operator, no environment variable."""
    fresh = url.replace("/alice/data", "/alice/fresh")
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": None, "PACKHOUSE_TOKEN": None}

    def run(*arguments: str, stdin: str | None = None) -> Result:
        result = CliRunner().invoke(packhouse, list(arguments), env=environ, input=stdin)
        assert result.exit_code == 0, result.output
        return result

    assert " as alice " in run("login", url, stdin=f"{hub.token}\n").stdout
    run("repo", "create", fresh, "--private", "--default-branch", "trunk")
    run("push", str(work), fresh, "-m", "one", "--branch", "trunk")
    hub.drain()
    run("clone", fresh, str(tmp_path / "copy"))
    assert same(work, tmp_path / "copy")
    (work / "README").write_bytes(b"again\n")
    run("push", str(work), "-m", "two")
    hub.drain()
    run("pull", str(tmp_path / "copy"))
    assert same(work, tmp_path / "copy")
    assert run("log", fresh).stdout == run("log", str(tmp_path / "copy")).stdout
    assert run("ls-remote", fresh).stdout.endswith("\ttrunk\n")
    assert run("whoami", fresh).stdout.startswith("alice (")
    assert run("repo", "show", fresh).stdout == "alice/fresh is private\ndefault branch: trunk; domain: code\n"
    assert run("repo", "visibility", fresh, "public").stdout.startswith("alice/fresh is public\n")
    run("logout", fresh)
    assert run("ls-remote", fresh).exit_code == 0
