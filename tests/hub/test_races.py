"""Races of pushes, claims, index and prebuild. Each is held open at its critical place; nothing waits for luck.

Where two transactions meet, the test sees Postgres itself say that one waits for the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import event
from werkzeug.test import TestResponse

import hub.work
from hub.work import INDEX, PREBUILD
from storage import FaultyStore, MemoryStore
from storage.faults import Fault
from tasks import queue
from tasks.worker import Worker
from tests.hub.racing import (
    WAIT_SECONDS,
    Connect,
    Failpoint,
    at_tip,
    backend,
    before_commit_of_a_push,
    beside,
    index_all,
    pushed,
    wait_until_blocked,
)
from tests.hub.views import cached, check, drain_for_hours, fetch_mpack, jobs, model, rows
from tests.hub.world import History, World

pytestmark = pytest.mark.integration

HOLDER = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND state = 'idle in transaction' AND pid <> pg_backend_pid()
"""


class TestJoin:
    """Push B joins the prebuild that push A has queued, while a worker is about to claim it."""

    def test_worker_passes_over_a_job_that_an_open_push_has_joined(self, world: World, history: History) -> None:
        first, second = history.line(2)
        pushed(world.push_mpack(history, first))
        seen: list[list[str]] = []

        def claim_meanwhile(_: object) -> None:
            seen.append([ran.task for ran in world.drain()])
            assert jobs(world, PREBUILD)[0].status == "pending"

        with before_commit_of_a_push(world, claim_meanwhile):
            pushed(world.push_mpack(history, second))
        assert seen == [[INDEX]]
        assert [ran.task for ran in world.drain()] == [INDEX, PREBUILD]
        at_tip(world, history, second)

    @pytest.mark.parametrize("ending", ["commit", "rollback"])
    def test_push_waits_for_an_open_claim_and_loses_nothing(
        self, world: World, history: History, connect: Connect, ending: str
    ) -> None:
        first, second = history.line(2)
        pushed(world.push_mpack(history, first))
        index_all(world)
        claiming = connect()
        (claim,) = queue.claim_jobs(claiming, worker="w", tasks=[PREBUILD], queues=["default"], limit=1)
        with beside(lambda: world.push_mpack(history, second)) as answer:
            wait_until_blocked(connect, claiming.info.backend_pid)
            getattr(claiming, ending)()
        pushed(answer.result())
        if ending == "commit":
            assert [job.status for job in jobs(world, PREBUILD)] == ["running", "pending"]
            assert queue.release_job(claiming, claim.ref) == "superseded"
            claiming.commit()
        else:
            assert [job.coalesced for job in jobs(world, PREBUILD)] == [1]
        world.drain()
        at_tip(world, history, second)

    @pytest.mark.parametrize("ending", ["rollback", "commit", "kill"])
    def test_push_that_meets_an_open_enqueue_has_a_job_whatever_becomes_of_that(
        self, world: World, history: History, connect: Connect, ending: str
    ) -> None:
        """A clone without cache queues a prebuild, its transaction is open, and push B wants to join."""
        first, second = history.line(2)
        pushed(world.push_mpack(history, first))
        world.drain()
        session = world.hub.services.sessions()
        opened = world.hub.work.enqueue_prebuild(session, world.repository_id, [])
        pid = backend(session)
        with beside(lambda: world.push_mpack(history, second)) as answer:
            wait_until_blocked(connect, pid)
            if ending == "kill":
                with connect() as killer:
                    killer.execute("SELECT pg_terminate_backend(%s)", [pid])
            else:
                getattr(session, ending)()
        session.invalidate() if ending == "kill" else session.close()
        pushed(answer.result())
        (waiting,) = jobs(world, PREBUILD, "pending")
        assert (waiting.job_id == opened) == (ending == "commit")
        assert waiting.coalesced == (1 if ending == "commit" else 0)
        world.drain()
        at_tip(world, history, second)

    def test_push_after_one_that_rolled_back_has_jobs_of_its_own(
        self, world: World, history: History, connect: Connect
    ) -> None:
        first, second = history.line(2)
        answers: list[Future[TestResponse]] = []

        def fail(session: Any) -> None:
            answers.append(pool.submit(world.push_mpack, history, second))
            wait_until_blocked(connect, backend(session))
            raise RuntimeError("the push breaks off")

        with ThreadPoolExecutor(1) as pool:
            with before_commit_of_a_push(world, fail):
                assert world.push_mpack(history, first).status_code == 500
            pushed(answers[0].result(WAIT_SECONDS))
        assert world.heads() == {"main": second}
        assert [(job.task, job.coalesced) for job in jobs(world)] == [(INDEX, 0), (PREBUILD, 0)]
        world.drain()
        at_tip(world, history, second)


class TestPrebuildUnderWay:
    """Push B lands while the prebuild runs that push A has queued."""

    @pytest.mark.parametrize(
        ("store", "op", "phase"),
        [("cache", "put", "before"), ("cache", "put", "after"), ("archive", "get_range", "before")],
    )
    @pytest.mark.parametrize("branch", ["main", "dev"])
    def test_drain_leaves_the_cache_at_the_newest_tip(
        self, new_world: Callable[..., World], history: History, store: str, op: str, phase: str, branch: str
    ) -> None:
        failpoint = Failpoint(op, phase)
        world = new_world(**{store: FaultyStore(MemoryStore(), hook=failpoint)})
        first, second = history.line(2)
        said = world.push_mpack(history, first).get_json()
        index_all(world)
        failpoint.arm(lambda: pushed(world.push_mpack(history, second, branch)))
        ran = world.drain()
        assert failpoint.was_reached
        assert [(item.task, item.outcome) for item in ran] == [
            (PREBUILD, "superseded"), (INDEX, "succeeded"), (PREBUILD, "succeeded")
        ]  # fmt: skip
        at_tip(world, history, *({second} if branch == "main" else {first, second}))
        assert world.get(f"/pushes/{said['push_id']}").get_json()["status"] == "prebuilt"

    def test_push_whose_build_was_overtaken_is_not_called_prebuilt(
        self, new_world: Callable[..., World], history: History
    ) -> None:
        failpoint = Failpoint("put")
        world = new_world(cache=FaultyStore(MemoryStore(), hook=failpoint))
        first, second = history.line(2)
        said = world.push_mpack(history, first).get_json()
        index_all(world)
        failpoint.arm(lambda: pushed(world.push_mpack(history, second, "dev")))
        with Worker(world.hub.work.app, concurrency=1) as worker:
            worker.once()
        assert cached(world) == {}
        assert world.get(f"/pushes/{said['push_id']}").get_json()["status"] == "indexed"

    def test_older_build_that_ends_late_replaces_nothing(
        self, new_world: Callable[..., World], history: History
    ) -> None:
        """While it builds, push B comes, is indexed and prebuilt by another worker, and served."""
        failpoint = Failpoint("put")
        world = new_world(cache=FaultyStore(MemoryStore(), hook=failpoint))
        first, second = history.line(2)
        pushed(world.push_mpack(history, first))
        index_all(world)
        seen: list[dict[str, str]] = []

        def overtake() -> None:
            pushed(world.push_mpack(history, second))
            assert [ran.task for ran in world.drain()] == [INDEX, PREBUILD]
            seen.append(cached(world))

        failpoint.arm(overtake)
        world.drain()
        assert seen == [cached(world)]
        assert seen[0].keys() == {second}
        at_tip(world, history, second)

    def test_many_pushes_while_it_runs_make_one_more_run(
        self, new_world: Callable[..., World], history: History
    ) -> None:
        failpoint = Failpoint("put")
        world = new_world(cache=FaultyStore(MemoryStore(), hook=failpoint))
        first, *others = history.line(12)
        pushed(world.push_mpack(history, first))
        index_all(world)
        failpoint.arm(lambda: [pushed(world.push_mpack(history, tip)) for tip in others])
        ran = [item.task for item in world.drain()]
        assert ran == [PREBUILD] + [INDEX] * len(others) + [PREBUILD]
        assert [job.coalesced for job in jobs(world, PREBUILD)] == [0, len(others) - 1]
        at_tip(world, history, others[-1])

    def test_gap_that_a_newer_push_explains_is_waited_for(
        self, world: World, history: History, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Push B lands between the claim and the look at the tips: its objects are not indexed yet."""
        first, second = history.line(2)
        pushed(world.push_mpack(history, first))
        index_all(world)
        look = hub.work.live_tips

        def push_and_look(*given: Any) -> list[str]:
            monkeypatch.setattr(hub.work, "live_tips", look)
            pushed(world.push_mpack(history, second))
            return look(*given)

        monkeypatch.setattr(hub.work, "live_tips", push_and_look)
        assert [(ran.task, ran.outcome) for ran in world.drain()] == [
            (PREBUILD, "superseded"), (INDEX, "succeeded"), (PREBUILD, "succeeded")
        ]  # fmt: skip
        at_tip(world, history, second)

    def test_push_waits_for_the_swap_and_the_swap_for_the_push(
        self, world: World, history: History, connect: Connect
    ) -> None:
        first, second = history.line(2)
        pushed(world.push_mpack(history, first))
        index_all(world)
        answers: list[Future[TestResponse]] = []

        def push_meanwhile(session: Any) -> None:
            swapped = session.connection().exec_driver_sql("SELECT count(*) FROM hub.fetch_mpack_cache").scalar_one()
            if swapped and not answers:
                answers.append(pool.submit(world.push_mpack, history, second))
                wait_until_blocked(connect, backend(session))

        with ThreadPoolExecutor(1) as pool:
            event.listen(world.hub.services.sessions, "before_commit", push_meanwhile)
            with Worker(world.hub.work.app, concurrency=1) as worker:
                assert [ran.outcome for ran in worker.once()] == ["succeeded"]
            pushed(answers[0].result(WAIT_SECONDS))
        assert cached(world).keys() == {first}
        world.drain()
        at_tip(world, history, second)

    def test_swap_waits_for_an_open_push_and_gives_way_to_it(
        self, world: World, history: History, connect: Connect
    ) -> None:
        first, second = history.line(2)
        pushed(world.push_mpack(history, first))
        index_all(world)
        ran: list[Future[list[Any]]] = []

        def build_meanwhile(session: Any) -> None:
            (job,) = jobs(world, PREBUILD)
            assert job.status == "running"
            go_on.set()
            wait_until_blocked(connect, backend(session))

        # The build must have been claimed before the push, or it would be passed over.
        claimed, go_on = threading.Event(), threading.Event()
        look = hub.work.live_tips

        def look_and_wait(*given: Any) -> list[str]:
            tips = look(*given)
            claimed.set()
            assert go_on.wait(WAIT_SECONDS)
            return tips

        with ThreadPoolExecutor(1) as pool, pytest.MonkeyPatch.context() as patch:
            patch.setattr(hub.work, "live_tips", look_and_wait)
            ran.append(pool.submit(world.drain))
            assert claimed.wait(WAIT_SECONDS)
            with before_commit_of_a_push(world, build_meanwhile):
                pushed(world.push_mpack(history, second))
            patch.undo()
            assert ran[0].result(WAIT_SECONDS)[0].outcome == "superseded"
        at_tip(world, history, second)


class TestStoreFails:
    def test_build_is_tried_again_when_the_store_refuses(
        self, new_world: Callable[..., World], history: History
    ) -> None:
        script = [("put", Fault.REFUSED), ("put", Fault.ANSWER_LOST)]
        world = new_world(cache=FaultyStore(MemoryStore(), script=script))
        tip = history.line(2)[-1]
        pushed(world.push_mpack(history, tip))
        assert [ran.outcome for ran in drain_for_hours(world, 4)] == ["succeeded", "retry", "retry", "succeeded"]
        (prebuild,) = jobs(world, PREBUILD)
        with world.hub.services.sessions() as session:
            attempts = queue.attempts_of(session, prebuild.job_id)
        assert [attempt.error_code for attempt in attempts] == ["UNAVAILABLE", "UNAVAILABLE", None]
        assert fetch_mpack(world) == model(history, [tip])
        check(world)

    @pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.BROKEN_OFF])
    def test_index_is_tried_again_when_the_body_breaks_off(
        self, new_world: Callable[..., World], history: History, fault: Fault
    ) -> None:
        """A short body is a broken answer, no corrupt pack: nothing is set aside for it."""
        world = new_world(archive=FaultyStore(MemoryStore(), script=[("get", None), ("get", fault)]))
        tip = history.line(2)[-1]
        pushed(world.push_mpack(history, tip))
        assert [ran.outcome for ran in drain_for_hours(world, 4)] == ["retry", "succeeded", "succeeded"]
        assert fetch_mpack(world) == model(history, [tip])


class TestIndexUnderWay:
    def test_same_pack_can_be_pushed_again_while_it_is_indexed(
        self, new_world: Callable[..., World], history: History
    ) -> None:
        """The index job holds its pack's row for as long as it reads; the push must not wait for that."""
        failpoint = Failpoint("get")
        world = new_world(archive=FaultyStore(MemoryStore(), hook=failpoint))
        tip = history.line(2)[-1]
        mpack_id, raw = history.mpack(history.ancestors(tip))
        pushed(world.push_bytes(mpack_id, raw, tip))
        failpoint.arm(lambda: pushed(world.push_bytes(mpack_id, raw, tip, "again")))
        world.drain()
        assert failpoint.was_reached
        assert len(jobs(world, INDEX)) == 2
        at_tip(world, history, tip)

    def test_index_of_one_pack_by_two_workers_writes_it_once(
        self, new_world: Callable[..., World], history: History, connect: Connect
    ) -> None:
        failpoint = Failpoint("get")
        world = new_world(archive=FaultyStore(MemoryStore(), hook=failpoint))
        tip = history.line(2)[-1]
        mpack_id, raw = history.mpack(history.ancestors(tip))
        pushed(world.push_bytes(mpack_id, raw, tip))
        second: list[Future[list[Any]]] = []

        def index_beside() -> None:
            pushed(world.push_bytes(mpack_id, raw, tip, "again"))
            second.append(pool.submit(world.drain))
            (pid,) = rows(world, HOLDER)[0]
            wait_until_blocked(connect, pid)

        failpoint.arm(index_beside)
        with ThreadPoolExecutor(1) as pool:
            world.drain()
            second[0].result(WAIT_SECONDS)
        world.drain()
        assert [job.status for job in jobs(world, INDEX)] == ["succeeded", "succeeded"]
        assert rows(world, "SELECT count(*) FROM hub.mpack_index WHERE kind = 3")[0][0] == 2
        at_tip(world, history, tip)
