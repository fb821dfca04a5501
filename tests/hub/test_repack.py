"""Many small packs become few, and nothing that anybody reads or pushes meanwhile is lost."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hub.repack
from hub.chores import REPACK
from hub.difference import difference
from hub.indexing import index_mpack
from hub.keys import mpack_key
from hub.locate import BlockReader, locate_objects
from hub.repack import FOLD_BYTES_MAX, FOLD_MIN, fold_count, repack
from storage import FaultyStore, MemoryStore
from tasks.queue import cancel_job
from tests.hub.collecting import collect_at_once, marks, packs
from tests.hub.racing import Failpoint, at_tip, pushed
from tests.hub.views import cached, fetch_mpack, fetch_muse, indexed_mpacks, jobs, model, rows
from tests.hub.world import History, World

pytestmark = pytest.mark.integration


class Killed(BaseException):
    """The process ended here."""


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four packs are enough to be folded."""
    monkeypatch.setattr(hub.repack, "FOLD_MIN", 4)


def fold(world: World) -> dict[str, int]:
    with world.hub.services.sessions.begin() as session:
        return repack(world.hub.services, session, world.repository_id)


def push_line(world: World, history: History, count: int, transport: str = "mpack") -> list[str]:
    """Push a line of commits one by one and index them, without the chores."""
    tips = history.line(count)
    for tip in tips:
        pushed((world.push_mpack if transport == "mpack" else world.push_muse)(history, tip))
    index_all(world)
    return tips


def index_all(world: World) -> None:
    for (mpack_id,) in rows(world, "SELECT encode(mpack_id, 'hex') FROM hub.mpack WHERE indexed_at IS NULL"):
        with world.hub.services.sessions.begin() as session:
            index_mpack(world.hub.services, session, world.repository_id, mpack_key(mpack_id))


class TestPolicy:
    def test_few_or_geometric_packs_stay(self) -> None:
        assert fold_count([1] * (FOLD_MIN - 1)) == 0
        assert fold_count([2**number for number in range(30)]) == 0

    def test_the_smallest_are_folded_and_large_ones_left(self) -> None:
        assert fold_count([1] * FOLD_MIN + [1000]) == FOLD_MIN
        assert fold_count([1] * FOLD_MIN + [FOLD_BYTES_MAX, FOLD_BYTES_MAX]) == FOLD_MIN

    @pytest.mark.parametrize("seed", range(5))
    def test_work_and_packs_grow_as_the_logarithm(self, seed: int) -> None:
        chance = random.Random(seed)
        sizes: list[int] = []
        copied = pushed_bytes = 0
        for _ in range(5000):
            sizes = sorted([*sizes, size := chance.choice([1, 1, 1, 5, 100])])
            pushed_bytes += size
            if count := fold_count(sizes):
                copied += sum(sizes[:count])
                sizes = sorted([*sizes[count:], sum(sizes[:count])])
        assert len(sizes) <= FOLD_MIN + 14
        assert copied <= 14 * pushed_bytes


@pytest.mark.usefixtures("eager")
class TestRepack:
    @pytest.mark.parametrize("transport", ["mpack", "muse"])
    def test_small_packs_become_one_and_a_clone_is_exact(self, world: World, history: History, transport: str) -> None:
        tips = push_line(world, history, 5, transport)
        before = packs(world)
        assert fold(world)["folded"] == len(before)
        (folded,) = indexed_mpacks(world)
        assert packs(world) == before | {folded}, "a fetch may still be reading them"
        assert {mpack_id for mpack_id, _ in marks(world)} == before
        world.drain()
        at_tip(world, history, tips[-1])
        assert fetch_muse(world, [tips[-1]], [tips[0]]) == model(history, [tips[-1]], [tips[0]])
        collect_at_once(world)
        assert packs(world) == {folded}
        assert fetch_mpack(world, [tips[3]], [tips[1]]) == model(history, [tips[3]], [tips[1]])

    def test_it_is_queued_by_the_push_that_makes_it_due_and_runs_by_itself(
        self, world: World, history: History
    ) -> None:
        for number, tip in enumerate(history.line(6)):
            pushed(world.push_mpack(history, tip))
            assert len(jobs(world, REPACK)) == (number >= 3)
        world.drain()
        (job,) = jobs(world, REPACK)
        assert (job.status, job.result["folded"]) == ("succeeded", 6)  # type: ignore[index]
        assert len(indexed_mpacks(world)) == 1
        at_tip(world, history, tip)

    def test_again_changes_nothing(self, world: World, history: History) -> None:
        push_line(world, history, 5)
        fold(world)
        before = indexed_mpacks(world)
        assert fold(world) == {"folded": 0}
        assert indexed_mpacks(world) == before

    def test_a_pack_that_is_pushed_again_after_it_was_folded_is_whole(self, world: World, history: History) -> None:
        tips = push_line(world, history, 5)
        fold(world)
        collect_at_once(world)
        mpack_id, raw = history.mpack(history.ancestors(tips[0]))
        pushed(world.push_bytes(mpack_id, raw, tips[0], "old"))
        assert mpack_id in packs(world)
        world.drain()
        at_tip(world, history, tips[0], tips[-1])

    def test_an_index_job_of_a_pack_that_was_folded_meanwhile_has_nothing_to_do(
        self, world: World, history: History
    ) -> None:
        tips = push_line(world, history, 4)
        mpack_id, raw = history.mpack(history.ancestors(tips[0]))
        pushed(world.push_bytes(mpack_id, raw, tips[0], "old"))
        fold(world)
        world.drain()
        at_tip(world, history, tips[0], tips[-1])

    @pytest.mark.parametrize(("op", "phase"), [("get", "before"), ("put", "before"), ("put", "after")])
    def test_a_run_that_dies_changes_nothing_and_the_next_one_succeeds(
        self, new_world: Callable[..., World], history: History, op: str, phase: str
    ) -> None:
        failpoint = Failpoint(op, phase)
        world = new_world(archive=FaultyStore(MemoryStore(), hook=failpoint))
        tips = push_line(world, history, 4)
        before = indexed_mpacks(world)

        def die() -> None:
            raise Killed

        failpoint.arm(die)
        with pytest.raises(Killed):
            fold(world)
        assert indexed_mpacks(world) == before
        assert marks(world) == []
        fold(world)
        collect_at_once(world)
        assert packs(world) == indexed_mpacks(world)
        world.drain()
        at_tip(world, history, tips[-1])

    def test_a_run_that_loses_its_transaction_leaves_garbage_only(self, world: World, history: History) -> None:
        tips = push_line(world, history, 4)
        before = packs(world)
        with world.hub.services.sessions() as session:
            repack(world.hub.services, session, world.repository_id)
            session.rollback()
        assert indexed_mpacks(world) == before
        collect_at_once(world)
        assert packs(world) == before
        fold(world)
        world.drain()
        at_tip(world, history, tips[-1])

    def test_a_worker_that_has_lost_its_claim_changes_nothing(
        self, new_world: Callable[..., World], history: History
    ) -> None:
        failpoint = Failpoint("put", "after")
        world = new_world(archive=FaultyStore(MemoryStore(), hook=failpoint))
        tips = push_line(world, history, 4)
        before = indexed_mpacks(world)

        def end_the_claim() -> None:
            (running,) = jobs(world, REPACK, "running")
            with world.hub.services.sessions.begin() as session:
                cancel_job(session, running.job_id, reason="taken away")

        failpoint.arm(end_the_claim)
        world.drain()
        assert failpoint.was_reached
        assert [job.status for job in jobs(world, REPACK)] == ["cancelled"]
        assert indexed_mpacks(world) == before
        assert marks(world) == []
        fold(world)
        at_tip(world, history, tips[-1])

    def test_of_two_runs_the_later_one_changes_nothing(self, new_world: Callable[..., World], history: History) -> None:
        failpoint = Failpoint("put", "before")
        world = new_world(archive=FaultyStore(MemoryStore(), hook=failpoint))
        tips = push_line(world, history, 4)
        failpoint.arm(lambda: fold(world))
        assert fold(world) == {"folded": 0}
        assert len(indexed_mpacks(world)) == 1
        world.drain()
        at_tip(world, history, tips[-1])

    def test_a_push_in_the_middle_of_it_stays(self, new_world: Callable[..., World], history: History) -> None:
        failpoint = Failpoint("put", "after")
        world = new_world(archive=FaultyStore(MemoryStore(), hook=failpoint))
        tips = push_line(world, history, 4)
        later = history.commit({"g": b"later"}, tips[-1])
        failpoint.arm(lambda: pushed(world.push_muse(history, later)))
        assert fold(world)["folded"] == 4
        world.drain()
        at_tip(world, history, later)

    def test_a_fetch_that_has_read_the_old_index_ends_well(self, world: World, history: History) -> None:
        tips = push_line(world, history, 5)
        services = world.hub.services
        with services.sessions() as session:
            wanted = difference(session, world.repository_id, [tips[-1]], []).objects
            places = locate_objects(session, world.repository_id, wanted)
            reader = BlockReader(services.archive, world.repository_id, places)
            fold(world)
            from hub.gc import collect

            collect(services)
            found = {place.entry.entity_id: reader.content(place) for place in places}
        assert found == {object_id: history.contents[object_id] for object_id in wanted}

    def test_a_damaged_pack_is_set_aside_and_a_push_of_it_mends(self, world: World, history: History) -> None:
        tips = push_line(world, history, 5)
        mpack_id, raw = history.mpack(history.ancestors(tips[0]))
        world.archive.put(f"mpacks/{world.repository_id}/{mpack_id}", raw[:-1] + b"x")
        world.drain()
        (job,) = jobs(world, REPACK)
        assert (job.status, job.last_error_code) == ("quarantined", "MPACK_CORRUPT")
        assert mpack_id in str(job.last_error)
        assert rows(world, "SELECT encode(mpack_id, 'hex') FROM hub.mpack WHERE state = 'quarantined'") == [(mpack_id,)]
        pushed(world.push_bytes(mpack_id, raw, tips[0], "main", force=True))
        pushed(world.push_bytes(*history.mpack(tips[1:]), tips[-1], "main"))
        world.drain()
        assert cached(world).keys() == {tips[-1]}
        assert fetch_mpack(world) == model(history, [tips[-1]])


numbers = itertools.count()
PUSHES = st.tuples(
    st.sampled_from(["main", "dev", "docs"]), st.sampled_from(["mpack", "muse"]), st.integers(0, 9),
    st.dictionaries(st.sampled_from(["d/a", "d/b", "e/c", "f"]), st.integers(0, 9).map(b"%d".__mod__), max_size=3),
)  # fmt: skip
"""Branch, transport, which other branch is merged, and the tree."""
STEPS = st.lists(PUSHES | PUSHES | st.sampled_from(["drain", "fold", "collect"]), min_size=4, max_size=24)


@pytest.mark.slow
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(steps=STEPS, picks=st.lists(st.integers(0, 99), max_size=3))
def test_random_histories_stay_exact_with_gc_and_repack_between(
    world: World, steps: list[Any], picks: list[int]
) -> None:
    slug, history = f"alice/random{next(numbers)}", History()
    world.repository_id, world.base = world.repository(slug), f"/{slug}"
    tips: dict[str, str] = {}

    def push(branch: str, transport: str, other: int, files: dict[str, bytes]) -> None:
        merged = sorted(tips.values())[other % len(tips)] if tips else None
        parents = dict.fromkeys(tip for tip in (tips.get(branch), merged) if tip)
        tip = history.commit(files, *parents)
        pushed((world.push_mpack if transport == "mpack" else world.push_muse)(history, tip, branch))
        tips[branch] = tip

    def stays_exact(have: list[str]) -> None:
        wanted = list(dict.fromkeys(tips.values()))
        assert fetch_mpack(world) == model(history, wanted)
        if have:
            assert fetch_mpack(world, wanted, have) == model(history, wanted, have)
        named = rows(
            world, "SELECT encode(mpack_id, 'hex') FROM hub.mpack WHERE repository_id = :id", id=world.repository_id
        )
        assert packs(world) == {mpack_id for (mpack_id,) in named}

    do = {"drain": world.drain, "fold": lambda: fold(world), "collect": lambda: collect_at_once(world)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hub.repack, "FOLD_MIN", 2)
        for step in steps:
            if isinstance(step, str):
                do[step]()
            else:
                push(*step)
        world.drain()
        collect_at_once(world)
    if tips:
        stays_exact([sorted(history.commits)[place % len(history.commits)] for place in picks])


@pytest.mark.slow
def test_two_hundred_pushes_leave_one_pack(world: World, history: History) -> None:
    tips = history.line(200)
    for tip in tips:
        pushed(world.push_mpack(history, tip))
    world.drain()
    collect_at_once(world)
    assert len(packs(world)) == 1
    at_tip(world, history, tips[-1])
