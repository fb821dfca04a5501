"""Part B, as our own client speaks it: presign, upload, push, status, fetch."""

from __future__ import annotations

import hashlib
import io
import random
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import msgpack
import pytest
import urllib3
from sqlalchemy import event

from hub.chores import GC, INTEL, LAST_COMMITS
from hub.keys import archive_key, cache_key
from hub.pack.format import Limits
from hub.pack.verify import verify_pack
from hub.work import INDEX, PREBUILD
from storage import FaultyStore, MemoryStore, Store
from tasks.worker import Worker
from tests.hub.offers import Offer, commit, push, refused, snapshot
from tests.hub.views import (
    cached,
    contents_of,
    drain_for_hours,
    fetch_mpack,
    fetch_muse,
    footprint,
    jobs,
    model,
    pushed_mpacks,
    rows,
)
from tests.hub.world import MUSE_ACCEPT, History, World

pytestmark = pytest.mark.integration

ID = "ab" * 32


def presign(world: World, history: History, tip: str) -> Any:
    mpack_id, raw = history.mpack(history.ancestors(tip))
    data = {"mpack_id": mpack_id, "size": len(raw), "branch": "main", "head": tip}
    return world.post("/push/mpack/presign", data).get_json()


class TestPush:
    def test_presign_answers_where_to_put_the_pack(self, world: World, history: History) -> None:
        said = presign(world, history, history.line(1)[0])
        assert said["mpack_key"] == f"mpacks/{history.mpack(list(history.commits))[0]}"
        assert said["upload"].keys() == {"method", "url", "headers", "expires_at"}

    def test_presign_offers_no_upload_of_what_is_held(self, world: World, history: History) -> None:
        tip = history.line(1)[0]
        assert world.push_mpack(history, tip).status_code == 200
        assert presign(world, history, tip)["upload"] is None

    def test_presign_offers_an_upload_of_what_another_repository_holds(self, world: World, history: History) -> None:
        tip = history.line(1)[0]
        world.push_mpack(history, tip)
        world.repository("alice/copy")
        world.base = "/alice/copy"
        assert presign(world, history, tip)["upload"] is not None

    def test_push_answers_what_it_did(self, world: World, history: History) -> None:
        tip = history.line(2)[-1]
        said = world.push_mpack(history, tip).get_json()
        assert (said["ok"], said["branch_heads"]) == (True, {"main": tip})
        assert [(job["task"], job["status"]) for job in said["jobs"]] == [
            (task, "pending") for task in (INDEX, PREBUILD, GC, LAST_COMMITS, INTEL)
        ]
        assert {job["id"] for job in said["jobs"][:2]} == {str(job.job_id) for job in jobs(world)}

    def test_repeat_answers_the_same_and_stores_nothing(self, world: World, history: History) -> None:
        tip = history.line(2)[-1]
        mpack_id, raw = history.mpack(history.ancestors(tip))
        first = world.push_bytes(mpack_id, raw, tip).get_json()
        before = footprint(world)
        assert world.push_bytes(mpack_id, raw, tip).get_json() == first
        assert footprint(world) == before
        world.drain()
        again = world.push_bytes(mpack_id, raw, tip).get_json()
        assert (again["push_id"], again["branch_heads"]) == (first["push_id"], first["branch_heads"])
        assert {job["status"] for job in again["jobs"]} == {"succeeded"}

    def test_repeat_is_accepted_after_the_branch_went_on(self, world: World, history: History) -> None:
        first, second = history.line(2)
        mpack_id, raw = history.mpack([first])
        said = world.push_bytes(mpack_id, raw, first).get_json()
        world.push_mpack(history, second)
        again = world.push_bytes(mpack_id, raw, first).get_json()
        assert (again["push_id"], again["branch_heads"]) == (said["push_id"], {"main": second})

    def test_nothing_stays_in_staging(self, world: World, history: History) -> None:
        world.push_mpack(history, history.line(1)[0])
        (mpack_id,) = pushed_mpacks(world)
        assert [stat.key for stat in world.archive.list()] == [archive_key(world.repository_id, mpack_id)]

    def test_forced_push_replaces_what_is_there(self, world: World, history: History) -> None:
        old = history.line(2)[-1]
        world.push_mpack(history, old)
        new = history.commit({"b": b"new"}, message="new root")
        mpack_id, raw = history.mpack([new])
        refused(world.push_bytes(mpack_id, raw, new), 409)
        assert world.push_bytes(mpack_id, raw, new, force=True).status_code == 200
        assert world.heads() == {"main": new}
        logged = rows(world, "SELECT encode(old_head_commit_id, 'hex'), forced FROM hub.push ORDER BY created_at")
        assert [tuple(row) for row in logged] == [(None, False), (old, True)]
        world.drain()
        assert fetch_mpack(world) == model(history, [new])
        assert fetch_mpack(world, [old]) == model(history, [old])

    def test_pack_may_leave_out_what_the_repository_holds(self, world: World, history: History) -> None:
        first, second = history.line(2)
        world.push_mpack(history, first)
        mpack_id, raw = history.mpack([second], without=history.objects_of([first]))
        assert world.push_bytes(mpack_id, raw, second).status_code == 200
        world.drain()
        assert fetch_mpack(world) == model(history, [second])

    def test_pack_may_need_objects_that_were_uploaded_by_part_a(self, world: World, history: History) -> None:
        tip = history.line(1)[0]
        objects = [{"object_id": item, "content": history.contents[item]} for item in history.objects_of([tip])]
        world.post("/push/objects", {"objects": objects}, muse=True)
        mpack_id, raw = history.mpack([tip], without=history.objects_of([tip]))
        said = world.push_bytes(mpack_id, raw, tip).get_json()
        assert [job["task"] for job in said["jobs"]][:3] == [INDEX, INDEX, PREBUILD]
        assert world.push_bytes(mpack_id, raw, tip).get_json()["push_id"] == said["push_id"]
        world.drain()
        assert fetch_mpack(world) == model(history, [tip])

    def test_answers_are_msgpack_when_asked_for(self, world: World, history: History) -> None:
        tip = history.line(1)[0]
        mpack_id, raw = history.mpack([tip])
        data = {"mpack_id": mpack_id, "size": len(raw), "branch": "main", "head": tip}
        said = msgpack.unpackb(world.post("/push/mpack/presign", data, muse=True).data)
        world.client.put(said["upload"]["url"], data=raw)
        data = {"mpack_key": said["mpack_key"], "branch": "main", "head": tip, "force": False}
        assert msgpack.unpackb(world.post("/push/mpack", data, muse=True).data)["ok"] is True
        waits = world.post("/fetch/mpack", {}, muse=True)
        refused(waits, 503)
        assert "Retry-After" in waits.headers
        world.drain()
        assert msgpack.unpackb(world.post("/fetch/mpack", {}, muse=True).data)["tips"] == {"main": tip}

    def test_delta_that_no_msgpack_reader_takes_is_stored_and_not_read(self, world: World) -> None:
        """`structured_delta` is the client's own; whatever is in it, a push is not refused for it."""
        tree = snapshot({})
        for number, delta in enumerate([{1: 2}, msgpack.ExtType(5, b"x"), {"domain": 7}, [[]] * 9, "midi"]):
            root = commit(tree, message=str(number), structured_delta=delta)
            assert push(world, "mpack", Offer([root], [tree], branch=f"b{number}")).status_code == 200
        assert world.get("/refs").get_json()["domain"] == "code"


class TestStatus:
    def status(self, world: World, said: dict[str, Any]) -> dict[str, Any]:
        return dict(world.get(f"/pushes/{said['push_id']}", token=None).get_json())

    def test_push_goes_from_received_to_prebuilt(self, world: World, history: History) -> None:
        said = world.push_mpack(history, history.line(1)[0]).get_json()
        with Worker(world.hub.work.app, queues=world.hub.work.app.queues(), concurrency=1) as worker:
            seen = [self.status(world, said)["status"]]
            while worker.once():
                seen.append(self.status(world, said)["status"])
        assert seen == ["received", "indexed", *["prebuilt"] * 4], "what else follows from a push keeps nobody waiting"
        assert {job["status"] for job in self.status(world, said)["jobs"]} == {"succeeded"}

    def test_failed_push_says_why(self, world: World, history: History) -> None:
        said = world.push_mpack(history, history.line(1)[0]).get_json()
        (mpack_id,) = pushed_mpacks(world)
        world.archive.delete(archive_key(world.repository_id, mpack_id))
        drain_for_hours(world)
        now = self.status(world, said)
        assert now["status"] == "failed"
        assert now["reason"] == "mpack.index has failed: NOT_FOUND"

    def test_each_push_has_its_own_status(self, world: World, history: History) -> None:
        first, second = history.line(2)
        pushes = [world.push_mpack(history, tip).get_json() for tip in (first, second)]
        assert pushes[0]["push_id"] != pushes[1]["push_id"]
        world.drain()
        assert [self.status(world, said)["status"] for said in pushes] == ["prebuilt", "prebuilt"]

    @pytest.mark.parametrize("push_id", [ID, "00000000-0000-0000-0000-000000000000", "x"])
    def test_unknown_push_is_not_found(self, world: World, push_id: str) -> None:
        refused(world.get(f"/pushes/{push_id}"), 404)


class TestFetch:
    def test_empty_repository_has_nothing_to_send(self, world: World) -> None:
        said = world.post("/fetch/mpack", {}).get_json()
        assert (said["mpack_id"], said["url"], said["size"], said["tips"]) == (None, None, 0, {})

    def test_clone_waits_for_the_index_and_then_for_the_prebuild(self, world: World, history: History) -> None:
        world.push_mpack(history, history.line(1)[0])
        waits: list[list[str]] = []
        with Worker(world.hub.work.app, concurrency=1) as worker:
            while (answer := world.post("/fetch/mpack", {})).status_code == 503:
                refused(answer, 503)
                assert answer.get_json()["error"] == "MPACK_NOT_READY"
                assert 1 <= int(answer.headers["Retry-After"]) <= 60
                waits.append([why["task"] for why in answer.get_json()["why"]])
                worker.once()
        assert waits == [[INDEX, PREBUILD], [PREBUILD]]
        assert answer.status_code == 200

    def test_why_names_the_job_and_says_it_in_a_sentence(self, world: World, history: History) -> None:
        world.push_mpack(history, history.line(1)[0])
        index, prebuild = world.post("/fetch/mpack", {}).get_json()["why"]
        (job,) = jobs(world, INDEX)
        assert (index["job_id"], index["status"]) == (str(job.job_id), "pending")
        assert str(job.job_id) in prebuild["sentence"]

    def test_clone_brings_everything(self, world: World, history: History) -> None:
        ids = history.line(4)
        world.push_mpack(history, ids[2])
        world.push_mpack(history, ids[3], "dev")
        world.drain()
        assert fetch_mpack(world, token=None) == model(history, ids)
        assert world.post("/fetch/mpack", {}).get_json()["tips"] == {"dev": ids[3], "main": ids[2]}

    def test_fetch_with_have_brings_the_difference_exactly(self, world: World, history: History) -> None:
        ids = history.line(6)
        world.push_mpack(history, ids[-1])
        world.drain()
        for number in range(6):
            assert fetch_mpack(world, [ids[-1]], [ids[number], ID]) == model(history, [ids[-1]], [ids[number]])
            assert fetch_mpack(world, [], [ids[number]]) == model(history, [ids[-1]], [ids[number]])

    def test_up_to_date_fetch_has_nothing_to_send(self, world: World, history: History) -> None:
        tip = history.line(2)[-1]
        world.push_mpack(history, tip)
        world.drain()
        said = world.post("/fetch/mpack", {"want": [tip], "have": [tip]}).get_json()
        assert (said["mpack_id"], said["size"], said["tips"]) == (None, 0, {"main": tip})

    def test_have_that_nobody_knows_is_a_clone_from_the_cache(self, world: World, history: History) -> None:
        """However many they are, and however often each is named."""
        tip = history.line(2)[-1]
        world.push_mpack(history, tip)
        world.drain()
        mpack_id = world.post("/fetch/mpack", {}).get_json()["mpack_id"]
        strangers = [f"{number:064x}" for number in range(100_000)]
        said = world.post("/fetch/mpack", {"want": [tip] * 1000, "have": strangers + strangers[:50_000]})
        assert (said.status_code, said.get_json()["mpack_id"]) == (200, mpack_id)

    @pytest.mark.parametrize("field", ["want", "have"])
    def test_a_million_ids_are_refused_by_their_size(self, world: World, field: str) -> None:
        refused(world.post("/fetch/mpack", {field: [ID] * 1_000_000}), 413, "smaller")

    def test_unknown_want_is_not_found(self, world: World, history: History) -> None:
        world.push_mpack(history, history.line(1)[0])
        refused(world.post("/fetch/mpack", {"want": [ID]}), 404, ID)

    def test_difference_waits_for_the_index(self, world: World, history: History) -> None:
        first, second = history.line(2)
        world.push_mpack(history, first)
        world.drain()
        world.push_mpack(history, second)
        answer = world.post("/fetch/mpack", {"want": [second], "have": [first]})
        refused(answer, 503)
        assert [why["task"] for why in answer.get_json()["why"]] == [INDEX, PREBUILD]

    def test_missing_cache_row_queues_a_prebuild(self, world: World, history: History) -> None:
        tip = history.line(1)[0]
        world.push_mpack(history, tip)
        world.drain()
        with world.hub.services.sessions.begin() as session:
            session.connection().exec_driver_sql("DELETE FROM hub.fetch_mpack_cache")
        answer = world.post("/fetch/mpack", {})
        refused(answer, 503)
        (prebuild,) = jobs(world, PREBUILD, "pending")
        assert [why["job_id"] for why in answer.get_json()["why"]] == [str(prebuild.job_id)]
        refused(world.post("/fetch/mpack", {}), 503)
        assert len(jobs(world, PREBUILD)) == 2
        world.drain()
        assert fetch_mpack(world) == model(history, [tip])

    def test_lost_cache_object_is_built_again(self, world: World, history: History) -> None:
        tip = history.line(1)[0]
        world.push_mpack(history, tip)
        world.drain()
        (mpack_id,) = set(cached(world).values())
        world.cache.delete(cache_key(world.repository_id, mpack_id))
        refused(world.post("/fetch/mpack", {}), 503)
        world.drain()
        assert fetch_mpack(world) == model(history, [tip])

    def test_pack_that_was_set_aside_does_not_stop_the_clone_for_ever(self, world: World, history: History) -> None:
        """Its objects came again in another pack; then the cache is lost."""
        tip = history.line(1)[0]
        world.push_mpack(history, tip)
        (mpack_id,) = pushed_mpacks(world)
        world.archive.put(archive_key(world.repository_id, mpack_id), b"\0" * 100)
        drain_for_hours(world)
        refused(world.post("/fetch/mpack", {}), 500, INDEX)
        child = history.commit(dict.fromkeys(["a", "b"], b"more"), tip)
        again, raw = history.mpack(history.ancestors(child))
        assert world.push_bytes(again, raw, child).status_code == 200
        world.drain()
        assert fetch_mpack(world) == model(history, [child])
        with world.hub.services.sessions.begin() as session:
            session.connection().exec_driver_sql("DELETE FROM hub.fetch_mpack_cache")
        refused(world.post("/fetch/mpack", {}), 503)
        world.drain()
        assert fetch_mpack(world) == model(history, [child])

    def test_large_blocks_are_copied_whatever_order_they_are_in(self, world: World, history: History) -> None:
        chooser = random.Random(7)
        files = {f"file{number:02}": chooser.randbytes(90_000) for number in range(24)}
        tip = history.commit(files)
        assert world.push_mpack(history, tip).status_code == 200
        assert {ran.outcome for ran in world.drain()} == {"succeeded"}
        found = fetch_mpack(world)
        assert found == model(history, [tip])
        assert sorted(found.bodies.values()) == sorted(files.values())
        assert fetch_muse(world, [tip]).bodies == found.bodies

    def test_block_with_something_else_in_it_is_not_copied(self, world: World, history: History) -> None:
        chooser = random.Random(8)
        files = {f"file{number:02}": chooser.randbytes(90_000) for number in range(12)}
        first = history.commit(files)
        second = history.commit(files | {"file00": chooser.randbytes(90_000)}, first)
        world.push_mpack(history, second)
        world.drain()
        assert fetch_mpack(world, [first]) == model(history, [first])
        assert fetch_mpack(world, [second], [first]) == model(history, [second], [first])

    def test_same_tips_make_the_same_pack(self, new_world: Callable[..., World], history: History) -> None:
        world = new_world()
        world.push_mpack(history, history.line(5)[-1])
        world.drain()
        first = cached(world)
        with world.hub.services.sessions.begin() as session:
            session.connection().exec_driver_sql("DELETE FROM hub.fetch_mpack_cache")
            world.hub.work.enqueue_prebuild(session, world.repository_id, [])
        world.drain()
        assert cached(world) == first

    def test_no_request_holds_two_connections(self, world: World, history: History) -> None:
        """Two a request would lock the pool up as soon as it is used up."""
        out: list[int] = []
        engine = world.hub.services.sessions.kw["bind"]
        event.listen(engine, "checkout", lambda *_: out.append(engine.pool.checkedout()))
        first, second = history.line(2)
        world.push_mpack(history, first)
        world.push_muse(history, second)
        world.post("/fetch/mpack", {})
        world.drain()
        fetch_mpack(world)
        with world.hub.services.sessions.begin() as session:
            session.connection().exec_driver_sql("DELETE FROM hub.fetch_mpack_cache")
        refused(world.post("/fetch/mpack", {}), 503)
        fetch_mpack(world, [second], [first])
        fetch_muse(world, [second], [first])
        assert max(out) == 1


class TestDownload:
    def url(self, world: World, history: History) -> tuple[str, bytes]:
        world.push_mpack(history, history.line(3)[-1])
        world.drain()
        url = world.post("/fetch/mpack", {}).get_json()["url"]
        return url, world.client.get(url).data

    @pytest.mark.parametrize(
        ("asked", "first", "last"), [("0-", 0, None), ("5-", 5, None), ("5-9", 5, 9), ("0-0", 0, 0)]
    )
    def test_part_of_a_pack_can_be_asked_for(
        self, world: World, history: History, asked: str, first: int, last: int | None
    ) -> None:
        url, whole = self.url(world, history)
        answer = world.client.get(url, headers={"Range": f"bytes={asked}"})
        assert answer.status_code == 206
        assert answer.data == whole[first : None if last is None else last + 1]
        last = len(whole) - 1 if last is None else last
        assert answer.headers["Content-Range"] == f"bytes {first}-{last}/{len(whole)}"

    def test_last_byte_beyond_the_end_is_cut(self, world: World, history: History) -> None:
        url, whole = self.url(world, history)
        answer = world.client.get(url, headers={"Range": "bytes=1-999999999"})
        assert (answer.status_code, answer.data) == (206, whole[1:])

    def test_range_outside_the_pack_is_refused(self, world: World, history: History) -> None:
        url, whole = self.url(world, history)
        for asked in (f"bytes={len(whole)}-", "bytes=9-5"):
            answer = world.client.get(url, headers={"Range": asked})
            refused(answer, 416)
            assert answer.headers["Content-Range"] == f"bytes */{len(whole)}"

    @pytest.mark.parametrize("asked", ["bytes=-5", "bytes=0-1,4-5", "lines=1-2", "bytes=x-", f"bytes={'9' * 5000}-"])
    def test_range_of_another_form_is_answered_with_the_whole(self, world: World, history: History, asked: str) -> None:
        url, whole = self.url(world, history)
        answer = world.client.get(url, headers={"Range": asked})
        assert (answer.status_code, answer.data) == (200, whole)

    def test_head_tells_the_size(self, world: World, history: History) -> None:
        url, whole = self.url(world, history)
        with world.client.head(url) as answer:
            assert (answer.status_code, answer.headers["Content-Length"]) == (200, str(len(whole)))

    def test_pack_that_is_gone_is_not_found(self, world: World, history: History) -> None:
        url, _ = self.url(world, history)
        (mpack_id,) = set(cached(world).values())
        world.cache.delete(cache_key(world.repository_id, mpack_id))
        refused(world.client.get(url), 404, "ask for a new URL")


def test_packs_go_straight_to_the_object_store_and_come_from_there(
    new_world: Callable[..., World], history: History, s3_store: Store
) -> None:
    """Presigned, on the real server: the hub sees neither body."""
    world = new_world(archive=s3_store, cache=s3_store)
    tip = history.line(3)[-1]
    mpack_id, raw = history.mpack(history.ancestors(tip))
    upload = world.post(
        "/push/mpack/presign", {"mpack_id": mpack_id, "size": len(raw), "branch": "main", "head": tip}
    ).get_json()["upload"]
    assert urlsplit(upload["url"]).hostname == "127.0.0.1"
    with urllib3.PoolManager() as http:
        put = http.request(upload["method"], upload["url"], body=raw, headers=upload["headers"], redirect=False)
        assert put.status == 200
        data = {"mpack_key": f"mpacks/{mpack_id}", "branch": "main", "head": tip, "force": False}
        assert world.post("/push/mpack", data).status_code == 200
        world.drain()
        said = world.post("/fetch/mpack", {}).get_json()
        got = http.request("GET", said["url"], redirect=False)
    assert hashlib.sha256(got.data).hexdigest() == said["mpack_id"]
    pack = verify_pack(io.BytesIO(got.data), limits=Limits(), expect_id=said["mpack_id"])
    assert contents_of(pack) == model(history, [tip])


def test_other_bytes_put_past_the_hub_are_refused_and_removed(
    new_world: Callable[..., World], history: History, s3_store: Store
) -> None:
    world = new_world(archive=s3_store, cache=s3_store)
    tip = history.line(1)[0]
    mpack_id, raw = history.mpack([tip])
    data = {"mpack_id": mpack_id, "size": len(raw), "branch": "main", "head": tip}
    upload = world.post("/push/mpack/presign", data).get_json()["upload"]
    with urllib3.PoolManager() as http:
        assert http.request("PUT", upload["url"], body=raw[:-1] + b"x", headers=upload["headers"]).status == 200
    refused(world.post("/push/mpack", {"mpack_key": f"mpacks/{mpack_id}", "branch": "main", "head": tip}), 422)
    assert list(world.archive.list()) == []
    assert jobs(world) == []


def test_answer_of_the_store_that_was_lost_does_not_lose_the_push(
    new_world: Callable[..., World], history: History
) -> None:
    """The copy was done, its answer timed out: the repeat finds the bytes there, and goes on."""
    from storage.faults import Fault

    world = new_world(archive=FaultyStore(MemoryStore(), script=[("copy", Fault.ANSWER_LOST)]))
    tip = history.line(1)[0]
    refused(world.push_mpack(history, tip), 503)
    assert world.push_mpack(history, tip).status_code == 200
    world.drain()
    assert fetch_mpack(world) == model(history, [tip])


def test_urls_name_the_host_that_was_asked(world: World, history: History) -> None:
    world.push_mpack(history, history.line(1)[0])
    world.drain()
    answer = world.client.post(
        "/alice/data/fetch/mpack", json={}, base_url="https://hub.example:8443", headers={"Accept": "application/json"}
    )
    assert answer.get_json()["url"].startswith("https://hub.example:8443/-/downloads/")
    assert MUSE_ACCEPT not in answer.text
