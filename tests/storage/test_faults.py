"""The faults come as ordered, and only those."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest

from storage import AlreadyExists, Body, Fault, FaultyStore, MemoryStore, Unavailable


def ten_of(store: MemoryStore) -> MemoryStore:
    for number in range(10):
        store.put(f"{number}", b"0123456789")
    return store


def outcomes(store: FaultyStore) -> list[bool]:
    """Whether each of fifty calls worked."""

    def works(number: int) -> bool:
        try:
            store.head(f"{number % 10}")
        except Unavailable:
            return False
        return True

    return [works(number) for number in range(50)]


class TestScript:
    def test_refused_put_stores_nothing(self) -> None:
        inner = MemoryStore()
        store = FaultyStore(inner, script=[("put", Fault.REFUSED)])
        with pytest.raises(Unavailable):
            store.put("k", b"x")
        assert list(inner.list()) == []

    def test_put_whose_answer_is_lost_has_stored_so_that_the_repeat_finds_it(self) -> None:
        store = FaultyStore(MemoryStore(), script=[("put", Fault.ANSWER_LOST)])
        with pytest.raises(Unavailable):
            store.put("k", b"x", if_absent=True)
        with pytest.raises(AlreadyExists):
            store.put("k", b"x", if_absent=True)

    def test_broken_off_body_is_noticed_after_its_first_half(self) -> None:
        store = FaultyStore(ten_of(MemoryStore()), script=[("get", Fault.BROKEN_OFF)])
        with store.get("1") as body:
            assert body.read(10) == b"01234"
            with pytest.raises(Unavailable):
                body.read(10)
        with store.get("1") as body:
            assert body.read(10) == b"0123456789"

    def test_broken_off_listing_raises_after_its_first_key(self) -> None:
        store = FaultyStore(ten_of(MemoryStore()), script=[("list", Fault.BROKEN_OFF)])
        listing = store.list()
        assert next(listing).key == "0"
        with pytest.raises(Unavailable):
            next(listing)

    def test_pairs_count_per_operation_and_none_works(self) -> None:
        store = FaultyStore(
            ten_of(MemoryStore()),
            script=[("head", None), ("delete", Fault.REFUSED), ("head", Fault.REFUSED)],
        )
        store.head("1")
        with pytest.raises(Unavailable):
            store.head("1")
        with pytest.raises(Unavailable):
            store.delete("1")
        store.head("1")
        store.delete("1")

    @pytest.mark.parametrize(
        "call",
        [
            lambda store: store.put("1", b"x"),
            lambda store: store.get("1"),
            lambda store: store.open_range("1", 0, 1),
            lambda store: store.get_range("1", 0, 1),
            lambda store: store.head("1"),
            lambda store: store.delete("1"),
            lambda store: store.list(),
        ],
        ids=["put", "get", "open_range", "get_range", "head", "delete", "list"],
    )
    @pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.ANSWER_LOST])
    def test_every_operation_fails_when_told(self, call: Callable[[FaultyStore], object], fault: Fault) -> None:
        operations = ["put", "get", "open_range", "get_range", "head", "delete", "list"]
        store = FaultyStore(ten_of(MemoryStore()), script=[(op, fault) for op in operations])
        with pytest.raises(Unavailable):
            call(store)

    def test_unknown_operation_is_refused(self) -> None:
        with pytest.raises(ValueError, match="putt is not an operation"):
            FaultyStore(MemoryStore(), script=[("putt", Fault.REFUSED)])


class TestChance:
    def test_same_seed_fails_the_same_calls(self) -> None:
        first, again, other = (outcomes(FaultyStore(ten_of(MemoryStore()), seed=seed, rate=0.3)) for seed in (1, 1, 2))
        assert first == again
        assert first != other

    def test_rate_is_the_share_of_failures(self) -> None:
        assert all(outcomes(FaultyStore(ten_of(MemoryStore()), rate=0)))
        assert not any(outcomes(FaultyStore(ten_of(MemoryStore()), rate=1)))
        assert 5 <= outcomes(FaultyStore(ten_of(MemoryStore()), seed=1, rate=0.3)).count(False) <= 25


class TestHook:
    def test_it_is_called_before_and_after(self) -> None:
        calls: list[tuple[str, str, str]] = []
        store = FaultyStore(MemoryStore(), hook=lambda *call: calls.append(call))
        store.put("k", b"x")
        store.presign_get("k", expires=timedelta(minutes=1))
        list(store.list("k"))
        assert calls == [(op, "k", phase) for op in ("put", "presign_get", "list") for phase in ("before", "after")]

    def test_it_is_not_called_after_a_refusal(self) -> None:
        phases: list[str] = []
        store = FaultyStore(
            MemoryStore(), script=[("put", Fault.REFUSED)], hook=lambda _op, _key, phase: phases.append(phase)
        )
        with pytest.raises(Unavailable):
            store.put("k", b"x")
        assert phases == ["before"]

    def test_what_it_raises_is_the_outcome_and_bodies_are_closed(self) -> None:
        def die_after_get(op: str, key: str, phase: str) -> None:
            if (op, phase) == ("get", "after"):
                raise KeyboardInterrupt(key)

        opened: list[Body] = []

        class Remembering(MemoryStore):
            def get(self, key: str) -> Body:
                opened.append(super().get(key))
                return opened[-1]

        store = FaultyStore(Remembering(), hook=die_after_get)
        store.put("k", b"x")
        with pytest.raises(KeyboardInterrupt):
            store.get("k")
        with pytest.raises(ValueError, match="closed"):
            opened[0].read(1)

    def test_it_can_hold_a_race_open(self) -> None:
        inner, reached, go_on = MemoryStore(), threading.Event(), threading.Event()

        def hold(op: str, _key: str, phase: str) -> None:
            if (op, phase) == ("put", "before"):
                reached.set()
                assert go_on.wait(timeout=30)

        late = threading.Thread(target=FaultyStore(inner, hook=hold).put, args=("k", b"late"))
        late.start()
        assert reached.wait(timeout=30)
        inner.put("k", b"early")
        go_on.set()
        late.join(timeout=30)
        with inner.get("k") as body:
            assert body.read(10) == b"late"
