import hashlib
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from hub.client import pushing, workdir
from hub.client.errors import BadInput, LinkRefused, NotReady, Refused, Unreachable
from hub.client.follow import await_prebuilt
from hub.client.progress import Silent
from hub.client.pushing import PushResult, Wish, push_directory
from hub.client.transport import Remote
from hub.client.tree import read_tree
from hub.client.workdir import Workdir
from hub.pack.format import Kind, Limits
from hub.pack.reader import PackReader
from hub.pack.verify import verify_pack
from hub.records import EMPTY_OBJECT_ID, object_id, snapshot_id
from tests.hub.client.conftest import Clock
from tests.hub.client.scripted import Reply, ScriptedServer, answer

NOW = datetime(2026, 3, 24, 12, 0, 0, 5, tzinfo=UTC)
HEAD, OTHER = "a" * 64, "b" * 64
README = object_id(b"hello\n")


class Hub:
    """A scripted hub that accepts one push and keeps what it got."""

    def __init__(self, server: ScriptedServer) -> None:
        self.server = server

    def prepare(
        self,
        *,
        heads: dict[str, str] | None = None,
        snapshots: dict[str, str] | None = None,
        missing: list[str] | None = None,
        held: bool = False,
        inline_bytes: int = 0,
    ) -> None:
        refs = {"repo_id": "r", "default_branch": "main", "branch_heads": heads or {}, "snapshots": snapshots or {}}
        refs["inline_bytes"] = inline_bytes
        self.server.on("GET", "refs", answer(refs))
        self.server.on("POST", "filter-objects", answer({"missing": missing or []}))
        upload = None if held else {"method": "PUT", "url": f"{self.server.root}/up", "headers": {}}
        self.server.on("POST", "push/mpack/presign", answer({"mpack_key": "the/key", "upload": upload}))
        self.server.on("PUT", "/up", Reply(200))
        jobs = [{"id": "j1", "task": "mpack.index", "status": "PENDING"}]
        done = {"ok": True, "branch_heads": {"main": HEAD}, "push_id": "p1", "jobs": jobs}
        self.server.on("POST", "push/mpack", answer(done))

    @property
    def pushed(self) -> Any:
        return self.server.asked_for("push/mpack")[0].json

    def pack(self) -> PackReader:
        body = self.server.asked_for("/up")[-1].body
        announced = self.server.asked_for("push/mpack/presign")[0].json
        assert announced["size"] == len(body)
        return verify_pack(io.BytesIO(body), limits=Limits(), expect_id=announced["mpack_id"])


@pytest.fixture
def hub(server: ScriptedServer) -> Hub:
    return Hub(server)


def push(remote: Remote, directory: Path, **wished: Any) -> PushResult:
    return push_directory(remote, Wish(directory, "A message", **wished), Silent(), now=lambda: NOW)


def all_missing(directory: Path) -> list[str]:
    return sorted(set(read_tree(directory).manifest.values()))


def test_first_push_is_a_root_commit_with_every_object_once(hub: Hub, remote: Remote, work: Path) -> None:
    hub.prepare(missing=all_missing(work))
    result = push(remote, work, author="Ada")
    pack = hub.pack()
    (commit,), (snapshot,) = list(pack.commits()), list(pack.snapshots())
    assert snapshot.manifest == read_tree(work).manifest
    assert (commit.parents, commit.message, commit.author, commit.branch) == ((), "A message", "Ada", "main")
    assert commit.committed_at == "2026-03-24T12:00:00.000005+00:00"
    assert commit.snapshot_id == snapshot.snapshot_id == result.snapshot_id
    objects = [entry.entity_id for entry in pack.entries if entry.kind is Kind.OBJECT]
    assert objects[0] == README
    assert sorted(objects) == sorted(set(snapshot.manifest.values()) - {EMPTY_OBJECT_ID})
    assert hub.pushed == {
        "mpack_key": "the/key", "branch": "main", "head": commit.commit_id, "force": False, "expected_head": None,
    }  # fmt: skip
    assert (result.objects_sent, result.files, result.parent) == (3, 5, None)


def test_objects_that_the_hub_holds_are_not_sent(hub: Hub, remote: Remote, work: Path) -> None:
    hub.prepare(heads={"main": HEAD}, missing=[README])
    result = push(remote, work)
    pack = hub.pack()
    assert [entry.entity_id for entry in pack.entries if entry.kind is Kind.OBJECT] == [README]
    assert result.objects_sent == 1
    asked = hub.server.asked_for("filter-objects")[0].json["object_ids"]
    assert EMPTY_OBJECT_ID not in asked


def test_plain_directory_is_published_on_top_of_the_head_with_a_lease(hub: Hub, remote: Remote, work: Path) -> None:
    hub.prepare(heads={"main": HEAD}, missing=all_missing(work))
    result = push(remote, work)
    (commit,) = hub.pack().commits()
    assert commit.parents == (HEAD,)
    assert hub.pushed["expected_head"] == HEAD
    assert workdir.load(work) == Workdir(remote.url, "main", result.commit_id)


def test_pack_that_is_there_already_is_not_uploaded(hub: Hub, remote: Remote, work: Path) -> None:
    hub.prepare(missing=all_missing(work), held=True)
    push(remote, work)
    assert hub.server.asked_for("/up") == []
    assert hub.pushed["mpack_key"] == "the/key"


def test_unchanged_files_make_no_commit(hub: Hub, remote: Remote, work: Path) -> None:
    hub.prepare(heads={"main": HEAD}, snapshots={"main": snapshot_id(read_tree(work).manifest)})
    result = push(remote, work)
    assert result.up_to_date
    assert result.commit_id == HEAD
    assert [asked.path for asked in hub.server.asked] == ["/ada/notes/refs"]


def test_unchanged_files_make_a_commit_when_asked_for(hub: Hub, remote: Remote, work: Path) -> None:
    hub.prepare(heads={"main": HEAD}, snapshots={"main": snapshot_id(read_tree(work).manifest)})
    result = push(remote, work, allow_empty=True)
    assert (result.up_to_date, result.parent, result.objects_sent) == (False, HEAD, 0)


def test_working_directory_pushes_onto_the_commit_it_is_at(hub: Hub, remote: Remote, work: Path) -> None:
    workdir.save(work, Workdir(remote.url, "next", HEAD))
    hub.prepare(heads={"next": HEAD, "main": OTHER}, missing=all_missing(work))
    push(remote, work)
    (commit,) = hub.pack().commits()
    assert (commit.parents, hub.pushed["branch"]) == ((HEAD,), "next")


def test_branch_that_has_moved_is_not_overwritten_with_older_files(hub: Hub, remote: Remote, work: Path) -> None:
    workdir.save(work, Workdir(remote.url, "main", HEAD))
    hub.prepare(heads={"main": OTHER})
    with pytest.raises(Refused, match="has moved") as caught:
        push(remote, work)
    assert (caught.value.status, caught.value.exit_code) == (409, 1)
    assert [asked.path for asked in hub.server.asked] == ["/ada/notes/refs"]


def test_force_replaces_just_the_head_that_was_seen(hub: Hub, remote: Remote, work: Path) -> None:
    workdir.save(work, Workdir(remote.url, "main", HEAD))
    hub.prepare(heads={"main": OTHER}, missing=all_missing(work))
    push(remote, work, force=True)
    (commit,) = hub.pack().commits()
    assert commit.parents == (HEAD,)
    assert (hub.pushed["force"], hub.pushed["expected_head"]) == (True, OTHER)


def test_push_whose_answer_was_lost_is_recognised_the_next_time(hub: Hub, remote: Remote, work: Path) -> None:
    workdir.save(work, Workdir(remote.url, "main", HEAD))
    hub.prepare(heads={"main": OTHER}, snapshots={"main": snapshot_id(read_tree(work).manifest)})
    assert push(remote, work).up_to_date
    assert workdir.load(work) == Workdir(remote.url, "main", OTHER)


def test_new_branch_of_a_working_directory_grows_from_its_commit(hub: Hub, remote: Remote, work: Path) -> None:
    workdir.save(work, Workdir(remote.url, "main", HEAD))
    hub.prepare(heads={"main": HEAD}, missing=all_missing(work))
    result = push(remote, work, branch="next")
    assert (result.parent, hub.pushed["expected_head"]) == (HEAD, None)
    assert workdir.load(work) == Workdir(remote.url, "next", result.commit_id)


def test_repository_that_is_empty_again_gets_a_first_commit(hub: Hub, remote: Remote, work: Path) -> None:
    workdir.save(work, Workdir(remote.url, "main", HEAD))
    hub.prepare(missing=all_missing(work))
    assert push(remote, work).parent is None


def test_notes_about_another_repository_are_kept(hub: Hub, remote: Remote, work: Path) -> None:
    elsewhere = Workdir("http://127.0.0.1:1/bob/other", "main", OTHER)
    workdir.save(work, elsewhere)
    hub.prepare(heads={"main": HEAD}, missing=all_missing(work))
    assert push(remote, work).parent == HEAD
    assert workdir.load(work) == elsewhere


def test_directory_that_cannot_be_written_is_pushed_all_the_same(
    hub: Hub, remote: Remote, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(directory: Path, now_at: Workdir) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(workdir, "save", refuse)
    hub.prepare(missing=all_missing(work))
    result = push(remote, work)
    assert result.push_id == "p1"
    assert "Permission denied" in result.note


def test_small_pack_comes_along_with_the_push(hub: Hub, remote: Remote, work: Path) -> None:
    hub.prepare(missing=all_missing(work), heads={"main": HEAD}, inline_bytes=1_000_000)
    result = push(remote, work)
    asked = hub.server.asked[-1]
    assert [(one.method, one.path.split("?")[0]) for one in hub.server.asked] == [
        ("GET", "/ada/notes/refs"),
        ("POST", "/ada/notes/filter-objects"),
        ("POST", "/ada/notes/push/mpack"),
    ]
    assert asked.headers["Content-Type"] == "application/x-mpack"
    fields = {name: values[0] for name, values in parse_qs(asked.path.partition("?")[2]).items()}
    mpack_id = hashlib.sha256(asked.body).hexdigest()
    assert fields == {
        "mpack_key": f"mpacks/{mpack_id}",
        "branch": "main",
        "head": result.commit_id,
        "force": "false",
        "expected_head": HEAD,
    }
    verify_pack(io.BytesIO(asked.body), limits=Limits(), expect_id=mpack_id)


def test_larger_pack_than_the_hub_takes_along_is_uploaded(hub: Hub, remote: Remote, work: Path) -> None:
    hub.prepare(missing=all_missing(work), inline_bytes=10)
    push(remote, work)
    assert len(list(hub.pack().commits())) == 1


def test_pack_that_something_on_the_way_finds_too_large_is_uploaded(hub: Hub, remote: Remote, work: Path) -> None:
    hub.server.on("POST", "push/mpack", Reply(413, b"<html>", {"Content-Type": "text/html"}))
    hub.prepare(missing=all_missing(work), inline_bytes=1_000_000)
    assert push(remote, work).push_id == "p1"
    assert len(list(hub.pack().commits())) == 1


def test_expired_upload_link_is_renewed(hub: Hub, remote: Remote, work: Path) -> None:
    hub.server.on("PUT", "/up", Reply(403, b"<Error/>", {"Content-Type": "application/xml"}))
    hub.prepare(missing=all_missing(work))
    assert push(remote, work).push_id == "p1"
    assert len(hub.server.asked_for("push/mpack/presign")) == 2


def test_upload_link_that_is_never_accepted_is_given_up(hub: Hub, remote: Remote, work: Path) -> None:
    hub.server.on("PUT", "/up", *[Reply(403, b"", {"Content-Type": "application/xml"})] * 3)
    hub.prepare(missing=all_missing(work))
    with pytest.raises(LinkRefused):
        push(remote, work)
    assert len(hub.server.asked_for("/up")) == 3
    assert workdir.load(work) is None


def test_hub_that_never_has_enough_of_the_parts_is_given_up(hub: Hub, remote: Remote, work: Path) -> None:
    part = {"number": 1, "offset": 0, "size": 10, "method": "PUT", "url": f"{hub.server.root}/up", "headers": {}}
    upload = {"upload_id": "u", "part_size": 10, "arrived": [], "parts": [part]}
    hub.server.on("POST", "push/mpack/presign", *[answer({"mpack_key": "the/key", "upload": upload})] * 2)
    hub.prepare(missing=all_missing(work))
    with pytest.raises(Unreachable, match="again"):
        push(remote, work)
    assert len(hub.server.asked_for("/up")) == 1


def test_refused_push_notes_nothing(hub: Hub, remote: Remote, work: Path) -> None:
    hub.server.on("POST", "push/mpack", answer({"error": "DIVERGED", "message": "Moved."}, 409))
    hub.prepare(missing=all_missing(work))
    with pytest.raises(Refused, match="Moved"):
        push(remote, work)
    assert workdir.load(work) is None


def test_file_that_changes_after_it_was_hashed_is_named(
    hub: Hub, remote: Remote, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.prepare(missing=all_missing(work))

    def read_then_change(directory: Path, hashed: Callable[[int, int], None], **options: Any) -> object:
        tree = read_tree(directory, hashed)
        (directory / "src" / "deep" / "a.bin").write_bytes(b"changed")
        return tree

    monkeypatch.setattr(pushing, "read_tree", read_then_change)
    with pytest.raises(BadInput, match=r"src/deep/a.bin.*changed"):
        push(remote, work)
    assert hub.server.asked_for("/up") == []


@pytest.mark.parametrize("branch", ["", "../x", "a\nb", "x" * 256])
def test_branch_that_cannot_be_is_refused_before_anything_is_asked(
    hub: Hub, remote: Remote, work: Path, branch: str
) -> None:
    with pytest.raises(BadInput, match="branch"):
        push(remote, work, branch=branch)
    assert hub.server.asked == []


def test_message_with_nul_is_refused(hub: Hub, remote: Remote, work: Path) -> None:
    hub.prepare(missing=all_missing(work))
    with pytest.raises(BadInput, match="message"):
        push_directory(remote, Wish(work, "a\0b"), Silent())


def status(standing: str, **more: str) -> Reply:
    jobs = [{"id": "j1", "task": "mpack.index", "status": "running"}]
    return answer({"push_id": "p1", "status": standing, "jobs": jobs, **more})


def test_waiting_for_a_push_ends_when_clones_can_have_it(server: ScriptedServer, remote: Remote, clock: Clock) -> None:
    server.on("GET", "pushes/p1", status("received"), status("indexed"), status("prebuilt"))
    assert await_prebuilt(remote, "p1", Silent()).status == "prebuilt"
    assert clock.slept == [0.5, 0.5]


def test_waiting_for_a_push_whose_job_has_failed_says_why(server: ScriptedServer, remote: Remote) -> None:
    server.on("GET", "pushes/p1", status("failed", reason="mpack.index has quarantined: MPACK_CORRUPT"))
    with pytest.raises(Refused, match="MPACK_CORRUPT"):
        await_prebuilt(remote, "p1", Silent())


def test_waiting_for_a_push_is_bounded_and_names_the_job(server: ScriptedServer, clock: Clock) -> None:
    server.on("GET", "pushes/p1", status("received"))
    with (
        Remote(server.url, timing=clock.timing(wait_seconds=3)) as remote,
        pytest.raises(NotReady, match="mpack.index j1 is running"),
    ):
        await_prebuilt(remote, "p1", Silent())
    assert len(clock.slept) == 6


def test_configuration_is_plain_json(hub: Hub, remote: Remote, work: Path) -> None:
    hub.prepare(missing=all_missing(work))
    result = push(remote, work)
    assert json.loads((work / ".packhouse" / "config.json").read_text()) == {
        "url": remote.url, "branch": "main", "head": result.commit_id,
    }  # fmt: skip
