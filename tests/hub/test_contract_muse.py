"""Part A over a real socket, with exactly the bytes of the Muse client (commit 8c90171): each of its flows."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgpack
import pytest
from werkzeug.serving import make_server

from hub import records
from storage import Store
from tests.hub.client.scripted import silent_handler
from tests.hub.muse import Answer, Muse
from tests.hub.views import model
from tests.hub.world import MSGPACK, History, World

pytestmark = pytest.mark.integration

LARGE = bytes(range(256)) * 300
Serve = Callable[[World], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serve a world on loopback; the URL of its hub."""
    servers = []

    def start(world: World) -> str:
        server = make_server("127.0.0.1", 0, world.app, threaded=True, request_handler=silent_handler())
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def url(world: World, serve: Serve) -> str:
    return serve(world)


@pytest.fixture
def muse(world: World, url: str) -> Muse:
    """A client with alice's token, its remote alice/data."""
    return Muse(f"{url}/alice/data", world.token)


def ok(answer: Answer | None) -> dict[str, Any]:
    assert answer is not None
    said = answer.decoded()
    assert said["ok"] is True, said
    return said


def ids(said: dict[str, Any]) -> tuple[set[str], set[str], set[str]]:
    return (
        {item["commit_id"] for item in said["commits"]},
        {item["snapshot_id"] for item in said["snapshots"]},
        {item["object_id"] for item in said["objects"]},
    )


def expected(history: History, want: list[str], have: list[str]) -> tuple[set[str], set[str], set[str]]:
    found = model(history, want, have)
    return set(found.commits), set(found.snapshots), set(found.objects)


class TestPush:
    def test_first_push_then_up_to_date(self, muse: Muse, history: History) -> None:
        tip = history.commit({"a": b"a", "empty": b"", "ü/новый": b"u"}, message="first\n\nlíne")
        assert ok(muse.push(history, tip))["branch_heads"] == {"main": tip}
        assert muse.calls == ["GET /refs", "POST /filter-objects", "POST /push/objects", "POST /push"]
        assert muse.push(history, tip) is None

    def test_objects_go_in_requests_of_400(self, muse: Muse, history: History) -> None:
        tip = history.commit({f"d/{number}": b"%d" % number for number in range(1_001)})
        ok(muse.push(history, tip))
        assert muse.calls.count("POST /push/objects") == 3
        calls = len(muse.calls)
        ok(muse.push(history, history.commit({"d/0": b"0", "new": b"new"}, tip)))
        assert muse.calls[calls:] == ["GET /refs", "POST /filter-objects", "POST /push/objects", "POST /push"]

    @pytest.mark.parametrize("where", ["store", "hub"])
    def test_large_objects_are_put_to_presigned_urls(
        self, new_world: Callable[..., World], s3_store: Store, serve: Serve, history: History, where: str
    ) -> None:
        world = new_world(archive=s3_store, presign=where == "store")
        muse = Muse(f"{serve(world)}/alice/data", world.token)
        tip = history.commit({"large": LARGE, "small": b"s"})
        ok(muse.push(history, tip))
        assert muse.calls[2:5] == ["POST /presign", "PUT", "POST /push/objects"]
        world.drain()
        said = Muse(muse.remote).clone()
        assert {item["content"] for item in said["objects"]} == {LARGE, b"s"}

    def test_rejected_then_forced(self, muse: Muse, history: History) -> None:
        old = history.line(2)[-1]
        ok(muse.push(history, old))
        other = history.commit({"x": b"x"}, message="other root")
        rejected = muse.push(history, other)
        assert rejected is not None
        assert rejected.status == 409
        assert ok(muse.push(history, other, force=True))["branch_heads"] == {"main": other}

    def test_branch_through_commits_of_another(self, muse: Muse, history: History) -> None:
        first, second, third = history.line(3)
        for tip, branch in ((first, "main"), (third, "dev"), (second, "main"), (third, "main")):
            ok(muse.push(history, tip, branch))
        assert muse.refs()["branch_heads"] == {"main": third, "dev": third}

    def test_repeat_after_a_lost_answer_succeeds(self, muse: Muse, history: History) -> None:
        tip = history.line(2)[-1]
        ok(muse.push(history, tip))
        data = {"bundle": history.bundle(history.ancestors(tip)), "branch": "main", "force": False}
        assert ok(muse.request("POST", "/push", data))["branch_heads"] == {"main": tip}

    def test_interrupted_push_sends_only_the_rest(self, muse: Muse, history: History) -> None:
        tip = history.commit({f"d/{number}": b"%d" % number for number in range(900)})
        wanted = history.objects_of([tip])
        muse.send_objects(history, wanted[:400])
        missing = muse.request("POST", "/filter-objects", {"object_ids": wanted}).decoded()["missing"]
        assert missing == wanted[400:]
        ok(muse.push(history, tip))

    @pytest.mark.parametrize(("who", "status"), [("wrong", 401), ("bob", 403), (None, 401)])
    def test_refusal_is_read_by_a_client_that_is_still_sending(
        self, world: World, muse: Muse, who: str | None, status: int
    ) -> None:
        """Thirty megabytes: an answer before the end would be a broken pipe."""
        muse.token = world.user("bob") if who == "bob" else who
        objects = [{"object_id": "ab" * 32, "content": bytes(30_000_000)}]
        answer = muse.request("POST", "/push/objects", {"objects": objects})
        assert answer.status == status
        assert 10 < len(answer.shown) < 400
        assert answer.headers["content-type"].startswith("text/plain")


class TestReceive:
    @pytest.fixture
    def tip(self, world: World, muse: Muse, history: History) -> str:
        """A merge of two branches, pushed and prebuilt."""
        left = history.line(3)
        right = history.commit({"r": b"r"}, left[0])
        merge = history.commit({"m": b"m", "empty": b""}, left[-1], right, message="Merge")
        ok(muse.push(history, right, "dev"))
        ok(muse.push(history, merge))
        world.drain()
        return merge

    def test_clone_is_two_requests_without_a_token(self, url: str, history: History, tip: str) -> None:
        clone = Muse(f"{url}/alice/data//")
        said = clone.clone()
        assert clone.calls == ["GET /refs", "POST /fetch"]
        assert ids(said) == expected(history, [tip], [])
        order = [item["commit_id"] for item in said["commits"]]
        for item in said["commits"]:
            parents = {item["parent_commit_id"], item["parent2_commit_id"]} - {None}
            assert all(order.index(parent) < order.index(item["commit_id"]) for parent in parents)
            assert "structured_delta" not in item

    def test_ready_made_answer_says_its_length_and_an_assembled_one_comes_in_chunks(
        self, muse: Muse, history: History, tip: str
    ) -> None:
        """A cut is loud in chunks; of a known length only nothing at all would be taken for an answer."""
        heads = list(muse.refs()["branch_heads"].values())
        whole = muse.request("POST", "/fetch", {"want": heads, "have": []})
        assert int(whole.headers["content-length"]) == len(whole.raw)
        part = muse.request("POST", "/fetch", {"want": [tip], "have": history.ancestors(tip)[-1:]})
        assert part.headers["transfer-encoding"] == "chunked"
        assert part.decoded()["branch_heads"] == whole.decoded()["branch_heads"]

    def test_pull_negotiates_and_gets_the_difference(self, world: World, url: str, history: History, tip: str) -> None:
        clone = Muse(f"{url}/alice/data")
        clone.clone()
        child = history.commit({"m": b"m", "new": b"new"}, tip)
        ok(Muse(clone.remote, world.token).push(history, child))
        world.drain()
        assert ids(clone.pull()) == expected(history, [child], [tip])
        calls = len(clone.calls)
        assert ids(clone.pull()) == (set(), set(), set())
        assert clone.calls[calls:] == ["GET /refs", "POST /negotiate", "POST /fetch"]

    def test_pull_into_an_empty_copy_asks_no_questions(self, muse: Muse, history: History, tip: str) -> None:
        assert ids(muse.pull()) == expected(history, [tip], [])
        assert muse.calls[-2:] == ["GET /refs", "POST /fetch"]

    def test_fetch_names_all_local_commits(self, muse: Muse, history: History, tip: str) -> None:
        have = [f"{number:064x}" for number in range(2_000)]
        assert ids(muse.fetch([tip], [*have, *history.ancestors(tip)[1:]]))[0] == {tip}

    def test_parts_are_another_remote(self, url: str, history: History, tip: str) -> None:
        parts = Muse(f"{url}/alice/data/-/parts")
        assert ids(parts.pull()) == expected(history, [tip], [])
        assert ids(parts.pull())[0] == set()
        assert ids(Muse(f"{url}/alice/data/-/page/1").pull())[0] == {history.ancestors(tip)[-1]}

    def test_empty_repository_has_no_heads(self, world: World, url: str) -> None:
        world.repository("alice/empty")
        assert Muse(f"{url}/alice/empty").refs()["branch_heads"] == {}

    def test_private_repository_is_pulled_with_a_token_and_not_there_without(
        self, world: World, url: str, history: History
    ) -> None:
        world.repository("alice/secret", private=True)
        owner, stranger = Muse(f"{url}/alice/secret", world.token), Muse(f"{url}/alice/secret")
        tip = history.line(1)[0]
        ok(owner.push(history, tip))
        world.drain()
        assert ids(owner.pull())[0] == {tip}
        assert stranger.request("GET", "/refs").status == 404
        assert stranger.request("POST", "/fetch", {"want": [tip], "have": []}).status == 404


class TestReleases:
    def test_release_is_json_in_and_msgpack_out(self, muse: Muse, history: History) -> None:
        tip = history.line(1)[0]
        ok(muse.push(history, tip))
        release = {
            "release_id": "5c3a1c5e-7a53-4a0e-9d0e-3e4f0d1f8a11", "repo_id": "r", "tag": "v1.0.0+build",
            "semver": {"major": 1, "minor": 0, "patch": 0, "pre": "", "build": "build"}, "channel": "stable",
            "commit_id": tip, "snapshot_id": history.commits[tip]["snapshot_id"], "title": "Ä", "body": "",
            "changelog": [], "agent_id": "", "model_id": "", "is_draft": False, "gpg_signature": "",
            "created_at": "2026-03-24T12:00:00+00:00",
        }  # fmt: skip
        body = json.dumps(release).encode()
        created = muse.request("POST", "/releases", body=body, kind="application/json")
        assert created.decoded()["release_id"] == release["release_id"]
        assert muse.request("POST", "/releases", body=body, kind="application/json").status == 409
        assert muse.request("GET", "/releases?channel=stable").decoded()["releases"] == [release]
        assert muse.request("DELETE", "/releases/v1.0.0%2Bbuild").status == 200
        assert muse.request("DELETE", "/releases/v1.0.0%2Bbuild").status == 404
        assert muse.request("GET", "/releases?include_drafts=1").decoded()["releases"] == []


class TestForm:
    def test_no_request_is_redirected_and_none_answered_in_json(self, world: World, url: str) -> None:
        for base in ("/alice/data", "/alice/data/-/parts", "/alice/none", "/alice/data/"):
            for method in ("GET", "POST", "HEAD", "OPTIONS"):
                for suffix in ("", "/", "/refs", "/refs/", "//refs", "/fetch", "/push/", "/x"):
                    client = Muse(url, world.token)
                    answer = client.request(method, base + suffix, body=None if method in ("GET", "HEAD") else b"")
                    assert not 300 <= answer.status < 400, (method, base + suffix)
                    assert answer.headers.get("content-type", MSGPACK) != "application/json", (method, base + suffix)

    def test_ping_needs_no_token(self, url: str) -> None:
        assert Muse(url).request("GET", "/health").status == 200

    def test_errors_are_one_short_sentence(self, muse: Muse) -> None:
        muse.remote += "/" + "x" * 3_000
        answer = muse.request("GET", "/refs")
        assert answer.status == 404
        assert len(answer.shown) < 410

    def test_empty_object_is_never_asked_for(self, muse: Muse) -> None:
        data = {"object_ids": [records.EMPTY_OBJECT_ID]}
        assert muse.request("POST", "/filter-objects", data).decoded() == {"missing": []}
        assert msgpack.packb(data)[0] == 0x81
