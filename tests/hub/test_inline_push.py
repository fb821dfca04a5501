"""A small pack that comes along with its push, in one request."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import hub.push
import hub.write_history
from hub.keys import archive_key
from hub.pack_upload import INLINE_BYTES
from storage import FaultyStore, MemoryStore
from tests.hub.offers import refused
from tests.hub.racing import Failpoint
from tests.hub.views import fetch_mpack, footprint, model
from tests.hub.world import History, World

pytestmark = pytest.mark.integration


def push_inline(world: World, mpack_id: str, raw: bytes, head: str, /, **options: str) -> Any:
    asked = {"mpack_key": f"mpacks/{mpack_id}", "branch": "main", "head": head, **options}
    return world.client.post(
        f"{world.base}/push/mpack",
        query_string=asked,
        data=raw,
        content_type="application/x-mpack",
        headers=world.headers(),
    )


def test_refs_tell_how_large_such_a_pack_may_be(world: World) -> None:
    assert world.get("/refs").get_json()["inline_bytes"] == INLINE_BYTES


def test_one_request_moves_the_branch(world: World, history: History) -> None:
    tip = history.commit({"a": b"one", "b": b"two"})
    mpack_id, raw = history.mpack([tip])
    answer = push_inline(world, mpack_id, raw, tip, expected_head="")
    assert answer.status_code == 200, answer.data
    assert answer.get_json()["branch_heads"] == {"main": tip}
    assert [stat.key for stat in world.archive.list()] == [archive_key(world.repository_id, mpack_id)]
    world.drain()
    assert fetch_mpack(world) == model(history, [tip])


def test_a_repeat_answers_the_same_again(world: World, history: History) -> None:
    tip = history.commit({"a": b"one"})
    mpack_id, raw = history.mpack([tip])
    first = push_inline(world, mpack_id, raw, tip, expected_head="")
    again = push_inline(world, mpack_id, raw, tip, expected_head="")
    assert again.get_json()["push_id"] == first.get_json()["push_id"]


def test_bytes_of_another_digest_leave_nothing(world: World, history: History) -> None:
    tip = history.commit({"a": b"one"})
    mpack_id, raw = history.mpack([tip])
    before = footprint(world)
    for changed in (raw[:-1], raw + b"\0", raw[:40] + bytes([raw[40] ^ 1]) + raw[41:], b""):
        refused(push_inline(world, mpack_id, changed, tip), 422)
    refused(push_inline(world, "0" * 64, raw, tip), 422, "mpack_id")
    assert footprint(world) == before


def test_a_larger_pack_is_sent_to_the_store(world: World, history: History) -> None:
    tip = history.commit({"a": b"one"})
    answer = push_inline(world, "0" * 64, bytes(INLINE_BYTES + 1), tip)
    refused(answer, 413, str(INLINE_BYTES), "push/mpack/presign")


def test_the_lease_and_the_fast_forward_hold(world: World, history: History) -> None:
    first = history.commit({"a": b"one"})
    world.push_mpack(history, first)
    other = history.commit({"a": b"other"})
    mpack_id, raw = history.mpack([other])
    refused(push_inline(world, mpack_id, raw, other), 409, "fast-forward")
    refused(push_inline(world, mpack_id, raw, other, force="true", expected_head=""), 409)
    answer = push_inline(world, mpack_id, raw, other, force="true", expected_head=first)
    assert answer.get_json()["branch_heads"] == {"main": other}


@pytest.mark.parametrize(
    ("field", "value"),
    [("force", "maybe"), ("expected_head", "x"), ("head", "x"), ("branch", "a..b"), ("mpack_key", "x")],
)
def test_a_wrong_field_is_named(world: World, history: History, field: str, value: str) -> None:
    tip = history.commit({"a": b"one"})
    mpack_id, raw = history.mpack([tip])
    refused(push_inline(world, mpack_id, raw, tip, **{field: value}), 422, field)


def test_rows_are_made_while_the_store_writes(
    new_world: Callable[..., World], history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, met = threading.Event(), []

    def make(*given: Any) -> Iterator[Any]:
        rows = hub.write_history.snapshot_rows(*given)
        made.set()
        return rows

    monkeypatch.setattr(hub.push, "snapshot_rows", make)
    failpoint = Failpoint("put")
    world = new_world(archive=FaultyStore(MemoryStore(), hook=failpoint))
    failpoint.arm(lambda: met.append(made.wait(10)))
    tip = history.commit({"a": b"one"})
    mpack_id, raw = history.mpack([tip])
    assert push_inline(world, mpack_id, raw, tip).status_code == 200
    assert met == [True]
