"""Part A, as the unmodified Muse client (commit 8c90171) speaks it: requests, answers, and the client's surprises."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import msgpack
import pytest

from hub import records
from hub.wire import pull
from hub.work import INDEX, PREBUILD
from tests.hub.offers import Offer, Unchanged, commit, push, refused, snapshot, stage
from tests.hub.views import Contents, fetch_mpack, fetch_muse, footprint, jobs, model, rows
from tests.hub.world import MSGPACK, MUSE_ACCEPT, History, World

pytestmark = pytest.mark.integration

ID = "ab" * 32
EMPTY = records.EMPTY_OBJECT_ID


def ask(world: World, path: str, data: Any, **options: Any) -> dict[str, Any]:
    """What the client makes of the answer: any 2xx is msgpack to it."""
    answer = world.post(path, data, muse=True, **options)
    assert answer.status_code == 200, answer.data
    assert answer.mimetype == MSGPACK
    return dict(msgpack.unpackb(answer.data))


def refs(world: World, **options: Any) -> dict[str, Any]:
    answer = world.get("/refs", muse=True, **options)
    assert (answer.status_code, answer.mimetype) == (200, MSGPACK)
    return dict(msgpack.unpackb(answer.data))


class TestForm:
    def test_every_answer_is_msgpack_with_text_keys(self, world: World, history: History) -> None:
        tip = history.line(2)[-1]
        world.push_muse(history, tip)
        world.drain()
        requests = {
            "/filter-objects": {"object_ids": [ID]},
            "/presign": {"object_ids": [ID], "direction": "put"},
            "/push/objects": {"objects": [{"object_id": EMPTY, "content": b""}]},
            "/push": {"bundle": history.bundle([tip]), "branch": "main", "force": False},
            "/negotiate": {"want": [tip], "have": []},
            "/fetch": {"want": [tip], "have": []},
        }
        for path, data in requests.items():
            assert all(isinstance(key, str) for key in ask(world, path, data)), path
        assert all(isinstance(key, str) for key in refs(world))

    @pytest.mark.parametrize("accept", ["application/json", "*/*", "text/html", None])
    def test_other_callers_get_json(self, world: World, accept: str | None) -> None:
        headers = {"Accept": accept} if accept else {}
        answer = world.client.get("/alice/data/refs", headers=headers)
        assert (answer.status_code, answer.mimetype) == (200, "application/json")
        assert answer.get_json()["branch_heads"] == {}

    def test_content_comes_as_bytes(self, world: World, history: History) -> None:
        tip = history.commit({"a": b"text that could be a string"})
        world.push_muse(history, tip)
        world.drain()
        answer = world.post("/fetch", {"want": [tip], "have": []}, muse=True)
        (item,) = msgpack.unpackb(answer.data)["objects"]
        assert item == {"object_id": history.objects_of([tip])[0], "content": b"text that could be a string"}

    @pytest.mark.parametrize(
        "path", ["/alice/data/refs/", "//alice/data/refs", "/alice/data//refs", "/Alice/data/refs"]
    )
    def test_no_path_redirects(self, world: World, path: str) -> None:
        answer = world.client.get(path, headers={"Accept": MUSE_ACCEPT})
        assert answer.status_code in (200, 404)
        assert "Location" not in answer.headers

    def test_trailing_slash_of_the_remote_makes_no_difference(self, world: World) -> None:
        assert world.client.get("/alice/data/refs/", headers={"Accept": MUSE_ACCEPT}).status_code == 200

    def test_body_is_read_before_a_refusal(self, world: World) -> None:
        """A client that is still sending sees a broken pipe instead of the sentence."""
        body = msgpack.packb({"objects": [{"object_id": ID, "content": b"x" * 1_000_000}]})
        for token, status in (("wrong", 401), (world.user("eve"), 403), ("", 422)):
            answer = world.client.post(
                "/alice/data/push/objects", data=body, content_type=MSGPACK,
                headers=world.headers(token) | {"Accept": MUSE_ACCEPT},
            )  # fmt: skip
            refused(answer, status)
            stream = answer.request.environ["wsgi.input"]
            assert stream.read() == b""


class TestRefs:
    def test_empty_repository_has_no_heads(self, world: World) -> None:
        said = refs(world)
        assert said["branch_heads"] == {}
        assert (said["default_branch"], said["domain"]) == ("main", "code")

    def test_default_branch_comes_first(self, world: World, history: History) -> None:
        """A clone whose default branch is absent takes the first."""
        for branch, tip in zip(["stable", "alpha", "zeta", "beta/one"], history.line(4), strict=True):
            world.push_muse(history, tip, branch)
        said = refs(world)
        assert said["default_branch"] == "stable"
        assert list(said["branch_heads"]) == ["stable", "alpha", "beta/one", "zeta"]

    def test_anybody_may_read_a_public_one(self, world: World, history: History) -> None:
        (tip,) = history.line(1)
        world.push_muse(history, tip)
        assert refs(world, token=None)["branch_heads"] == {"main": tip}


class TestObjects:
    def test_missing_are_those_that_were_never_uploaded_here(self, world: World, history: History) -> None:
        tip = history.line(1)[0]
        held = history.objects_of([tip])
        world.push_muse(history, tip)
        assert ask(world, "/filter-objects", {"object_ids": [*held, ID]}) == {"missing": [ID]}
        world.drain()
        assert ask(world, "/filter-objects", {"object_ids": [*held, ID]}) == {"missing": [ID]}

    def test_empty_object_is_always_held(self, world: World) -> None:
        assert ask(world, "/filter-objects", {"object_ids": [EMPTY]}) == {"missing": []}

    def test_order_and_repeats_are_kept(self, world: World) -> None:
        others = ["cd" * 32, ID, "01" * 32]
        assert ask(world, "/filter-objects", {"object_ids": others}) == {"missing": others}

    def test_hundred_thousand_ids_are_one_request(self, world: World) -> None:
        ids = [f"{number:064x}" for number in range(100_000)]
        assert len(ask(world, "/filter-objects", {"object_ids": ids})["missing"]) == 100_000

    @pytest.mark.slow
    def test_300000_ids_are_one_request_in_bounded_memory(self, world: World) -> None:
        """Decoded at once they would be some 120 MB. What is in memory does not grow with their number."""
        held = {"objects": [{"object_id": records.object_id(b"a"), "content": b"a"}]}
        ask(world, "/push/objects", held)
        count = 300_000
        ids = b"".join(b"\xd9\x40%064x" % number for number in range(count - 1))
        body = b"\x81" + msgpack.packb("object_ids") + b"\xdd" + count.to_bytes(4, "big") + ids
        body += msgpack.packb(records.object_id(b"a"))
        tracemalloc.start()
        answer = world.client.post(
            "/alice/data/filter-objects", data=body, content_type=MSGPACK,
            headers=world.headers() | {"Accept": MUSE_ACCEPT},
        )  # fmt: skip
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert answer.status_code == 200
        assert len(answer.data) == 1 + 8 + 5 + 66 * (count - 1)
        assert peak < 80_000_000

    def test_upload_counts_what_is_new(self, world: World) -> None:
        objects = [{"object_id": records.object_id(content), "content": content} for content in (b"a", b"b", b"")]
        assert ask(world, "/push/objects", {"objects": objects[:1]}) == {"stored": 1, "skipped": 0}
        assert ask(world, "/push/objects", {"objects": objects}) == {"stored": 1, "skipped": 2}
        before = footprint(world)
        assert ask(world, "/push/objects", {"objects": objects}) == {"stored": 0, "skipped": 3}
        assert footprint(world) == before

    def test_interrupted_push_goes_on_where_it_stopped(self, world: World, history: History) -> None:
        tip = history.line(1, files=5)[0]
        wanted = history.objects_of([tip])
        some = [{"object_id": item, "content": history.contents[item]} for item in wanted[:2]]
        ask(world, "/push/objects", {"objects": some})
        assert ask(world, "/filter-objects", {"object_ids": wanted}) == {"missing": wanted[2:]}
        assert world.push_muse(history, tip).status_code == 200
        assert [job.task for job in jobs(world)] == [INDEX, INDEX, INDEX, PREBUILD]
        world.drain()
        assert fetch_muse(world, [tip]) == model(history, [tip])

    def test_uploads_that_nobody_needed_stay_apart(self, world: World, history: History) -> None:
        """A push adopts the staged packs that it needs, and no other."""
        ask(world, "/push/objects", {"objects": [{"object_id": records.object_id(b"a"), "content": b"a"}]})
        world.push_muse(history, history.line(1)[0])
        states = rows(world, "SELECT state, count(*) FROM hub.mpack GROUP BY 1 ORDER BY 1")
        assert [tuple(row) for row in states] == [("live", 2), ("staged", 1)]

    def test_second_repository_learns_nothing_of_the_first(self, world: World, history: History) -> None:
        tip = history.line(2)[-1]
        world.push_muse(history, tip)
        world.drain()
        world.repository("alice/copy")
        world.base = "/alice/copy"
        wanted = history.objects_of(history.ancestors(tip))
        assert ask(world, "/filter-objects", {"object_ids": wanted}) == {"missing": wanted}
        with Unchanged(world):
            refused(world.post("/fetch", {"want": [tip], "have": []}, muse=True), 404, tip)
            refused(world.post("/negotiate", {"want": [tip], "have": [tip]}, muse=True), 404, tip)
            data = {"bundle": history.bundle(history.ancestors(tip)), "branch": "main", "force": False}
            refused(world.post("/push", data, muse=True), 422, "never uploaded")
            # Not even by naming the other's snapshot.
            stolen = commit({"snapshot_id": history.commits[tip]["snapshot_id"]})
            refused(push(world, "muse", Offer([stolen])), 422, "neither sent nor held")

    def test_second_repository_with_the_same_content_is_complete(self, world: World, history: History) -> None:
        tip = history.line(3)[-1]
        world.push_muse(history, tip)
        world.repository("alice/copy")
        world.base = "/alice/copy"
        assert world.push_muse(history, tip).status_code == 200
        world.drain()
        assert fetch_muse(world, [tip]) == model(history, [tip])
        assert fetch_mpack(world) == model(history, [tip])


class TestPush:
    def test_answer_says_ok_and_where_the_branches_are(self, world: World, history: History) -> None:
        tip = history.line(1)[0]
        said = msgpack.unpackb(world.push_muse(history, tip).data)
        assert said["ok"] is True
        assert said["branch_heads"] == {"main": tip}
        assert "main" in said["message"]

    def test_repeat_succeeds_and_stores_no_row(self, world: World, history: History) -> None:
        tip = history.line(2)[-1]
        data = {"bundle": history.bundle(history.ancestors(tip)), "branch": "main", "force": False}
        world.push_muse(history, tip)
        before = footprint(world)
        assert ask(world, "/push", data)["branch_heads"] == {"main": tip}
        assert footprint(world) == before

    def test_force_overwrites_and_the_old_head_can_still_be_fetched(self, world: World, history: History) -> None:
        old = history.line(2)[-1]
        world.push_muse(history, old)
        new = history.commit({"b": b"new"}, message="another root")
        refused(world.push_muse(history, new), 409)
        assert world.push_muse(history, new, force=True).status_code == 200
        world.drain()
        assert world.heads() == {"main": new}
        assert fetch_muse(world, [new]) == model(history, [new])
        assert fetch_muse(world, [old]) == model(history, [old])

    def test_child_of_a_former_head_is_accepted(self, world: World, history: History) -> None:
        """A client may still remember a head that was overwritten."""
        old = history.line(1)[0]
        world.push_muse(history, old)
        world.push_muse(history, history.commit({"b": b"new"}, message="another root"), force=True)
        child = history.commit({"c": b"child"}, old)
        stage(world, Offer([], contents=[b"child"]))
        data = {"bundle": history.bundle([child]), "branch": "rescue", "force": False}
        assert ask(world, "/push", data)["branch_heads"]["rescue"] == child

    def test_fast_forward_through_commits_of_another_branch(self, world: World, history: History) -> None:
        """main moves over commits that were pushed as dev and are not in the bundle."""
        base, middle, tip = history.line(3)
        world.push_muse(history, base)
        world.push_muse(history, middle, "dev")
        stage(world, Offer([], contents=[history.contents[item] for item in history.objects_of([tip])]))
        data = {"bundle": history.bundle([tip]), "branch": "main", "force": False}
        assert ask(world, "/push", data)["branch_heads"] == {"dev": middle, "main": tip}

    def test_fast_forward_through_the_second_parent(self, world: World, history: History) -> None:
        ours, theirs = history.commit({"a": b"1"}), history.commit({"b": b"2"})
        world.push_muse(history, theirs)
        merge = history.commit({"a": b"1", "b": b"2"}, ours, theirs, message="Merge")
        assert world.push_muse(history, merge).status_code == 200
        world.drain()
        assert fetch_muse(world, [merge]) == model(history, [merge])

    def test_new_branch_at_a_known_commit(self, world: World, history: History) -> None:
        tip = history.line(2)[-1]
        world.push_muse(history, tip)
        data = {"bundle": history.bundle([tip]), "branch": "dev", "force": False}
        assert ask(world, "/push", data)["branch_heads"] == {"dev": tip, "main": tip}
        world.drain()
        assert fetch_mpack(world) == model(history, [tip])

    def test_whole_history_again_is_accepted(self, world: World, history: History) -> None:
        ids = history.line(3)
        world.push_muse(history, ids[1])
        stage(world, Offer([], contents=list(history.contents.values())))
        data = {"bundle": history.bundle(history.ancestors(ids[2])), "branch": "main", "force": False}
        assert ask(world, "/push", data)["branch_heads"] == {"main": ids[2]}

    def test_first_record_of_a_commit_wins(self, world: World) -> None:
        """The client changes reviewed_by and test_runs in place, and sends the commit again."""
        tree = snapshot({})
        root, child = commit(tree, author="first"), None
        assert push(world, "muse", Offer([root], [tree])).status_code == 200
        child = commit(tree, root["commit_id"], message="child")
        changed = {**root, "author": "second", "test_runs": 3}
        assert push(world, "muse", Offer([child, changed], [tree])).status_code == 200
        said = ask(world, "/fetch", {"want": [child["commit_id"]], "have": []})
        assert [item["author"] for item in said["commits"]] == ["first", ""]

    def test_objects_in_the_bundle_are_taken(self, world: World) -> None:
        """The type has them, though the client sends none."""
        tree = snapshot({"a": records.object_id(b"a")})
        bundle = {
            "commits": [commit(tree)], "snapshots": [tree],
            "objects": [{"object_id": records.object_id(b"a"), "content": b"a"}], "tags": [], "branch_heads": {},
        }  # fmt: skip
        assert ask(world, "/push", {"bundle": bundle, "branch": "main", "force": False})["ok"] is True
        world.drain()
        assert fetch_mpack(world).bodies == {records.object_id(b"a"): b"a"}

    @pytest.mark.parametrize("branch", ["with space", "~", "-x", "@", "HEAD", "x.lock", "a/b/c", "ветка", "x" * 255])
    def test_odd_branch_name_is_taken(self, world: World, history: History, branch: str) -> None:
        tip = history.line(1)[0]
        assert world.push_muse(history, tip, branch).status_code == 200
        assert refs(world)["branch_heads"] == {branch: tip}

    def test_empty_commit_empty_message_and_empty_tree(self, world: World, history: History) -> None:
        empty = history.commit({}, message="")
        again = history.commit({}, empty, message="\n  \n")
        assert history.commits[again]["snapshot_id"] == EMPTY
        assert world.push_muse(history, again).status_code == 200
        world.drain()
        assert fetch_muse(world, [again]) == fetch_mpack(world) == model(history, [again])
        said = ask(world, "/fetch", {"want": [again], "have": []})
        assert [item["message"] for item in said["commits"]] == ["", "\n  \n"]
        assert [item["manifest"] for item in said["snapshots"]] == [{}]

    def test_empty_file_is_in_the_tree_and_never_sent(self, world: World, history: History) -> None:
        tip = history.commit({"empty": b"", "full": b"x"})
        assert world.push_muse(history, tip).status_code == 200
        world.drain()
        said = ask(world, "/fetch", {"want": [tip], "have": []})
        assert said["snapshots"][0]["manifest"]["empty"] == EMPTY
        assert fetch_muse(world, [tip]) == fetch_mpack(world) == model(history, [tip])

    def test_paths_are_kept_as_they_are(self, world: World, history: History) -> None:
        paths = ["e\u0301", "é", "новый\nfile", "tab\there", "back\\slash", ' ;|:*?"<>', "\U0001f600", "a" * 200]
        tip = history.commit({path: path.encode() for path in paths})
        assert world.push_muse(history, tip).status_code == 200
        world.drain()
        said = ask(world, "/fetch", {"want": [tip], "have": []})
        assert said["snapshots"] == [history.snapshots[history.commits[tip]["snapshot_id"]]]


class TestNegotiate:
    @pytest.fixture
    def ids(self, world: World, history: History) -> list[str]:
        found = history.line(5)
        assert world.push_muse(history, found[-1]).status_code == 200
        return found

    def test_acknowledges_what_is_stored_here(self, world: World, ids: list[str]) -> None:
        said = ask(world, "/negotiate", {"want": [ids[4]], "have": [ID, ids[1], ids[3]]})
        assert (said["ack"], said["ready"], said["common_base"]) == ([ids[1], ids[3]], True, ids[3])

    def test_ready_at_once_when_the_client_has_it(self, world: World, ids: list[str]) -> None:
        assert ask(world, "/negotiate", {"want": [ids[4]], "have": [ids[4]]})["ready"] is True
        assert ask(world, "/negotiate", {"want": [ids[2]], "have": [ids[4]]})["ready"] is True

    def test_not_ready_while_a_root_would_be_sent(self, world: World, ids: list[str]) -> None:
        said = ask(world, "/negotiate", {"want": [ids[4]], "have": [ID]})
        assert (said["ack"], said["ready"], said["common_base"]) == ([], False, None)

    def test_not_ready_while_the_difference_is_large(
        self, world: World, ids: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pull, "READY_COMMITS", 3)
        assert ask(world, "/negotiate", {"want": [ids[4]], "have": [ids[0]]})["ready"] is False
        assert ask(world, "/negotiate", {"want": [ids[4]], "have": [ids[1]]})["ready"] is True

    def test_unknown_want_is_not_found(self, world: World, ids: list[str]) -> None:
        refused(world.post("/negotiate", {"want": [ID], "have": ids[:1]}, muse=True), 404, ID)


class TestFetch:
    @pytest.fixture
    def ids(self, world: World, history: History) -> list[str]:
        found = history.line(6)
        assert world.push_muse(history, found[-1]).status_code == 200
        world.drain()
        return found

    def test_difference_is_exact_from_everywhere(self, world: World, history: History, ids: list[str]) -> None:
        for have in ids:
            assert fetch_muse(world, [ids[-1]], [have]) == model(history, [ids[-1]], [have])

    def test_one_changed_file_is_one_object(self, world: World, history: History) -> None:
        files = {f"f{number}": b"%d" % number for number in range(50)}
        first = history.commit(files)
        second = history.commit(files | {"f7": b"changed"}, first)
        world.push_muse(history, second)
        world.drain()
        assert fetch_muse(world, [second], [first]).bodies == {records.object_id(b"changed"): b"changed"}

    def test_up_to_date_is_empty(self, world: World, ids: list[str]) -> None:
        nothing = Contents(frozenset(), frozenset(), frozenset())
        assert fetch_muse(world, [ids[-1]], [ids[-1]]) == nothing
        assert fetch_muse(world, [], []) == nothing

    def test_parents_come_before_children(self, world: World, history: History) -> None:
        left = history.line(3)
        right = history.line(3, start=10, parent=left[0])
        merge = history.commit({"m": b"m"}, left[-1], right[-1])
        world.push_muse(history, merge)
        world.drain()
        order = fetch_muse(world, [merge]).order
        place = {commit_id: number for number, commit_id in enumerate(order)}
        assert len(place) == 7
        for commit_id in order:
            for key in ("parent_commit_id", "parent2_commit_id"):
                parent = history.commits[commit_id][key]
                assert parent is None or place[parent] < place[commit_id]

    def test_record_comes_back_as_it_was_sent_without_the_delta(self, world: World, history: History) -> None:
        tip = history.commit(
            {"a": b"a"}, message="líne\nß", author="Ada <a@b>", branch="feature/x", metadata={"section": "s"},
            repo_id="1b4e28ba-2fa1-11d2-883f-0016d3cca427", sem_ver_bump="minor", breaking_changes=["x"],
            agent_id="agent", reviewed_by=["bob"], test_runs=7,
            structured_delta={"domain": "code", "ops": [{"op": "add"}]},
        )  # fmt: skip
        world.push_muse(history, tip)
        world.drain()
        (record,) = ask(world, "/fetch", {"want": [tip], "have": []})["commits"]
        expected = {key: value for key, value in history.commits[tip].items() if key != "structured_delta"}
        assert record == expected
        assert len(record) == 21

    def test_time_comes_back_in_its_own_offset(self, world: World) -> None:
        tree = snapshot({})
        root = commit(tree, at="2026-03-24T14:00:00.000001+05:45")
        push(world, "muse", Offer([root], [tree]))
        (record,) = ask(world, "/fetch", {"want": [root["commit_id"]], "have": []})["commits"]
        assert record["committed_at"] == "2026-03-24T14:00:00.000001+05:45"

    def test_unknown_have_is_normal_and_duplicate_wants_too(
        self, world: World, history: History, ids: list[str]
    ) -> None:
        tip = ids[-1]
        assert fetch_muse(world, [tip, tip], [ID, ids[2], ids[2]]) == model(history, [tip], [ids[2]])

    def test_unknown_want_is_not_found(self, world: World, ids: list[str]) -> None:
        refused(world.post("/fetch", {"want": [ids[0], ID], "have": []}, muse=True), 404, ID)

    def test_head_that_moved_meanwhile_is_still_served(self, world: World, history: History, ids: list[str]) -> None:
        child = history.commit({"c": b"c"}, ids[-1])
        world.push_muse(history, child)
        world.drain()
        assert fetch_muse(world, [ids[-1]]) == model(history, [ids[-1]])

    def test_answer_names_the_heads(self, world: World, ids: list[str]) -> None:
        assert ask(world, "/fetch", {"want": [ids[0]], "have": []})["branch_heads"] == {"main": ids[-1]}

    def test_answer_waits_for_the_index_of_a_push_that_has_just_come(
        self, world: World, history: History, ids: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The client neither waits nor asks again; so the hub does, and looks again after each pause."""
        child = history.commit({"c": b"c"}, ids[-1])
        world.push_muse(history, child)
        monkeypatch.setattr(pull.time, "sleep", lambda _: world.drain())
        assert fetch_muse(world, [child], [ids[-1]]) == model(history, [child], [ids[-1]])

    def test_answer_that_waited_too_long_says_so(
        self, world: World, history: History, ids: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        child = history.commit({"c": b"c"}, ids[-1])
        world.push_muse(history, child)
        monkeypatch.setattr(pull, "INDEX_SECONDS", 0)
        answer = world.post("/fetch", {"want": [child], "have": []}, muse=True)
        refused(answer, 503, "still being indexed")
        assert int(answer.headers["Retry-After"]) > 0

    def test_answer_that_the_client_cannot_take_is_refused_with_a_way_out(
        self, world: World, ids: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        size = len(world.post("/fetch", {"want": [ids[-1]], "have": []}, muse=True).data)
        monkeypatch.setattr(pull, "ANSWER_BYTES", size - 1)
        answer = world.post("/fetch", {"want": [ids[-1]], "have": []}, muse=True)
        refused(
            answer, 413, "packhouse clone", "muse pull --no-merge origin main", "http://localhost/alice/data/-/parts"
        )


def test_real_flow_of_two_clients(new_world: Callable[..., World]) -> None:
    """Push, clone, push from the clone, pull: each sees exactly what it lacks."""
    world, history = new_world(), History()
    first = history.line(3)[-1]
    world.push_muse(history, first)
    world.drain()
    heads = refs(world, token=None)["branch_heads"]
    cloned = fetch_muse(world, list(heads.values()), token=None)
    assert cloned == model(history, [first])
    second = history.commit({"new": b"from the clone"}, first)
    assert world.push_muse(history, second).status_code == 200
    world.drain()
    said = ask(world, "/negotiate", {"want": [second], "have": sorted(cloned.commits)})
    assert said["ready"] is True
    pulled = fetch_muse(world, [second], said["ack"])
    assert pulled == model(history, [second], [first])
    assert pulled.bodies == {records.object_id(b"from the clone"): b"from the clone"}
