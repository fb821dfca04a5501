"""A push that takes longer than the Muse client waits for a byte."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgpack
import pytest
from werkzeug.test import TestResponse

from storage import FaultyStore, MemoryStore, Unavailable
from tests.hub.offers import Offer, commit, push, refused, snapshot
from tests.hub.world import World

pytestmark = pytest.mark.integration

TREE = snapshot({})


class Gate:
    """Holds up the next write of a pack until it is opened; then it goes on, or fails."""

    def __init__(self) -> None:
        self.shut = False
        self.open = threading.Event()
        self.error: Exception | None = None

    def __call__(self, op: str, _key: str, phase: str) -> None:
        if self.shut and (op, phase) == ("put", "before"):
            self.shut = False
            assert self.open.wait(30)
            if self.error is not None:
                raise self.error


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    monkeypatch.setattr("hub.wire.in_time.SILENT_SECONDS", 0.01)
    monkeypatch.setattr("hub.wire.in_time.SPACE_SECONDS", 0.01)
    gate = Gate()
    yield gate
    gate.open.set()


@pytest.fixture
def world(new_world: Callable[..., World], gate: Gate) -> World:
    return new_world(archive=FaultyStore(MemoryStore(), hook=gate))


def begin(world: World, gate: Gate, offer: Offer) -> tuple[TestResponse, Iterator[bytes]]:
    """The answer to a push that is held up, and the rest of its body after the head and three spaces."""
    gate.shut = True
    answer = push(world, "muse", offer)
    assert answer.status_code == 200
    body: Iterator[bytes] = iter(answer.response)  # type: ignore[arg-type]
    next(body)
    assert [next(body) for _ in range(3)] == [b" "] * 3
    return answer, body


def finish(gate: Gate, begun: tuple[TestResponse, Iterator[bytes]]) -> dict[str, Any]:
    answer, body = begun
    gate.open.set()
    head = b"\x83\xa7message\xda\x03\xe8" + b"   "
    said = msgpack.unpackb(head + b"".join(body))
    answer.close()
    assert said.keys() == {"ok", "message", "branch_heads"}
    assert len(said["message"].encode()) == 1000
    return {**said, "message": said["message"].strip()}


def test_spaces_come_while_it_is_taken_in_and_the_outcome_at_the_end(world: World, gate: Gate) -> None:
    offer = Offer([commit(TREE)], [TREE])
    said = finish(gate, begin(world, gate, offer))
    assert said == {"ok": True, "message": f"main is now {offer.tip[:12]}.", "branch_heads": {"main": offer.tip}}
    assert world.heads() == {"main": offer.tip}


def test_refusal_that_comes_late_is_not_ok_and_has_the_sentence(world: World, gate: Gate) -> None:
    begun = begin(world, gate, Offer([commit(TREE)], [TREE]))
    gate.error = Unavailable("the store is away")
    said = finish(gate, begun)
    assert (said["ok"], said["branch_heads"]) == (False, {})
    assert "does not answer; nothing was changed" in said["message"]
    assert world.heads() == {}


def test_late_loser_of_a_race_is_told_to_pull(world: World, gate: Gate) -> None:
    begun = begin(world, gate, Offer([commit(TREE, message="late")], [TREE]))
    winner = Offer([commit(TREE, message="quick")], [TREE])
    with ThreadPoolExecutor(1) as pool:  # a thread of its own: the context of the request above is open in this one
        assert pool.submit(push, world, "mpack", winner).result().status_code == 200
    said = finish(gate, begun)
    assert not said["ok"]
    assert "not a fast-forward. Pull first" in said["message"]
    assert world.heads() == {"main": winner.tip}


def test_caller_who_goes_away_finds_it_done(world: World, gate: Gate) -> None:
    offer = Offer([commit(TREE)], [TREE])
    answer, _ = begin(world, gate, offer)
    answer.close()
    gate.open.set()
    assert msgpack.unpackb(push(world, "muse", offer).data)["ok"]
    assert world.heads() == {"main": offer.tip}


def test_push_goes_on_when_its_caller_goes_away(world: World, gate: Gate) -> None:
    offer = Offer([commit(TREE)], [TREE])
    answer, _ = begin(world, gate, offer)
    answer.close()
    gate.open.set()
    world.close()
    assert world.heads() == {"main": offer.tip}


def test_push_that_is_quick_has_the_status_of_its_error(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hub.wire.in_time.SILENT_SECONDS", 30.0)
    refused(push(world, "muse", Offer([commit(TREE, "ab" * 32)], [TREE])), 422, "unknown here")
