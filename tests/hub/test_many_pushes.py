"""Many pushes and many workers at once: one wins, nobody is lost, nothing is done twice."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgpack
import pytest
from werkzeug.test import TestResponse

from hub.work import INDEX, PREBUILD
from storage import FaultyStore, MemoryStore
from tasks.worker import Worker
from tests.hub.racing import WAIT_SECONDS, at_tip, pushed
from tests.hub.views import jobs, rows
from tests.hub.world import MSGPACK, MUSE_ACCEPT, History, World

pytestmark = pytest.mark.integration

PUSHERS = 20
CHILDREN = 50


class TestManyPushes:
    """All have passed the first check when the first one takes the lock."""

    def world(
        self, new_world: Callable[..., World], parties: int, phase: str = "after"
    ) -> tuple[World, Callable[[], None]]:
        barrier = threading.Barrier(parties, timeout=WAIT_SECONDS)
        armed = threading.Event()

        def hook(op: str, key: str, at: str) -> None:
            if armed.is_set() and op in ("put", "copy") and at == phase and key.startswith("mpacks/"):
                barrier.wait()

        return new_world(archive=FaultyStore(MemoryStore(), hook=hook)), armed.set

    def together(self, calls: list[Callable[[], TestResponse]]) -> list[TestResponse]:
        with ThreadPoolExecutor(len(calls)) as pool:
            futures = [pool.submit(call) for call in calls]
            return [future.result(WAIT_SECONDS) for future in futures]

    def offers(self, world: World, history: History, tips: list[str], *, known: list[str], transport: str) -> list[Any]:
        """Pushes of these tips to main, all made with clients of their own, and ready but for the last request."""
        calls = []
        for tip in tips:
            if transport == "mpack":
                mpack_id, raw = history.mpack(history.ancestors(tip, known))
                data = {"mpack_id": mpack_id, "size": len(raw), "branch": "main", "head": tip}
                url = world.post("/push/mpack/presign", data).get_json()["upload"]["url"]
                pushed(world.client.put(url, data=raw))
                request = {
                    "path": "/push/mpack",
                    "json": {"mpack_key": f"mpacks/{mpack_id}", "branch": "main", "head": tip},
                }
            else:
                wanted = history.objects_of([tip])
                objects = [{"object_id": item, "content": history.contents[item]} for item in wanted]
                pushed(world.post("/push/objects", {"objects": objects}, muse=True))
                data = {"bundle": history.bundle(history.ancestors(tip, known)), "branch": "main", "force": False}
                request = {"path": "/push", "muse": data}
            calls.append(lambda request=request: self.send(world, **request))
        return calls

    def send(self, world: World, path: str, json: Any = None, muse: Any = None) -> TestResponse:
        client = world.app.test_client()
        if muse is None:
            return client.post(world.base + path, json=json, headers=world.headers())
        headers = world.headers() | {"Accept": MUSE_ACCEPT}
        return client.post(world.base + path, data=msgpack.packb(muse), content_type=MSGPACK, headers=headers)

    @pytest.mark.slow
    @pytest.mark.parametrize("transport", ["mpack", "muse"])
    @pytest.mark.parametrize("exists", [True, False], ids=["of one head", "of a new branch"])
    def test_one_wins_and_the_others_are_told(
        self, new_world: Callable[..., World], history: History, transport: str, exists: bool
    ) -> None:
        world, arm = self.world(new_world, CHILDREN)
        parents = history.line(1) if exists else []
        if exists:
            pushed(world.push_mpack(history, parents[0]))
        tips = [history.commit({"f": b"%d" % number}, *parents) for number in range(CHILDREN)]
        calls = self.offers(world, history, tips, known=parents, transport=transport)
        arm()
        answers = self.together(calls)
        assert sorted(answer.status_code for answer in answers) == [200] + [409] * (CHILDREN - 1)
        winner = tips[[answer.status_code for answer in answers].index(200)]
        assert world.heads() == {"main": winner}
        assert rows(world, "SELECT count(*) FROM hub.push")[0][0] == len(parents) + 1
        assert rows(world, "SELECT count(*) FROM hub.commit")[0][0] == len(parents) + 1
        world.drain()
        at_tip(world, history, winner)

    @pytest.mark.parametrize("transport", ["mpack", "muse"])
    def test_the_same_push_many_times_over_succeeds_every_time(
        self, new_world: Callable[..., World], history: History, transport: str
    ) -> None:
        world, arm = self.world(new_world, PUSHERS, "before")
        tip = history.line(1)[0]
        (call,) = self.offers(world, history, [tip], known=[], transport=transport)
        arm()
        answers = self.together([call] * PUSHERS)
        assert [answer.status_code for answer in answers] == [200] * PUSHERS
        assert rows(world, "SELECT count(*) FROM hub.push")[0][0] == 1
        world.drain()
        at_tip(world, history, tip)

    def test_the_same_upload_and_push_at_any_moment_succeeds(self, world: World, history: History) -> None:
        """Nothing held: one may remove the upload that another still has to read."""
        tip = history.line(1)[0]
        mpack_id, raw = history.mpack([tip])
        data = {"mpack_id": mpack_id, "size": len(raw), "branch": "main", "head": tip}

        def push() -> TestResponse:
            client = world.app.test_client()
            upload = client.post("/alice/data/push/mpack/presign", json=data, headers=world.headers()).get_json()[
                "upload"
            ]
            if upload:
                pushed(client.put(upload["url"], data=raw))
            request = {"mpack_key": f"mpacks/{mpack_id}", "branch": "main", "head": tip}
            return client.post("/alice/data/push/mpack", json=request, headers=world.headers())

        answers = self.together([push] * PUSHERS)
        assert {answer.status_code for answer in answers} == {200}
        assert {answer.get_json()["push_id"] for answer in answers} == {answers[0].get_json()["push_id"]}

    def test_pushes_to_different_branches_all_succeed(
        self, new_world: Callable[..., World], history: History, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("hub.repack.FOLD_MIN", 1000)  # its put would wait at the barrier, too
        world, arm = self.world(new_world, 8)
        (base,) = history.line(1)
        pushed(world.push_mpack(history, base))
        tips = [history.commit({"f": b"%d" % number}, base) for number in range(8)]
        calls = self.offers(world, history, tips, known=[base], transport="muse")
        for number, call in enumerate(calls):
            request = call.__defaults__[0]
            request["muse"]["branch"] = f"branch{number}"
        arm()
        assert {answer.status_code for answer in self.together(calls)} == {200}
        world.drain()
        at_tip(world, history, base, *tips)


def test_two_workers_share_the_work_and_do_it_once(world: World, history: History) -> None:
    branches = ["main", "dev", "docs"]
    for number, tip in enumerate(history.line(9)):
        pushed(world.push_mpack(history, tip, branches[number % 3]))
    barrier = threading.Barrier(2, timeout=WAIT_SECONDS)

    def work() -> list[str]:
        ran: list[str] = []
        with Worker(world.hub.work.app, queues=world.hub.work.app.queues(), concurrency=1) as worker:
            barrier.wait()
            # The gate may be shut for one while the other's index job runs.
            for _ in range(1000):
                settled = worker.once()
                ran += [item.task for item in settled if item.task in (INDEX, PREBUILD)]
                if not settled and not jobs(world, status="pending") and not jobs(world, status="running"):
                    break
        return ran

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(work), pool.submit(work)
        ran = first.result(WAIT_SECONDS) + second.result(WAIT_SECONDS)
    assert sorted(ran) == sorted([INDEX] * 9 + [PREBUILD])
    at_tip(world, history, *world.heads().values())
