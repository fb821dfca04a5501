"""A large pack that was pushed whole is the clone."""

from __future__ import annotations

import random

import pytest

from hub import fetch_body
from hub.keys import archive_key, cache_key
from hub.work import PREBUILD
from tests.hub.offers import refused
from tests.hub.views import cached, fetch_mpack, jobs, model, pushed_mpacks
from tests.hub.world import History, World

pytestmark = pytest.mark.integration


@pytest.fixture
def tip(history: History, monkeypatch: pytest.MonkeyPatch) -> str:
    """A commit of 200 KB, which is large here: its body would be more than a client reads."""
    monkeypatch.setattr("hub.whole.LEAST_BYTES", 100_000)
    monkeypatch.setattr("hub.prebuild.ANSWER_BYTES", 150_000)
    assert fetch_body.ANSWER_BYTES > 150_000
    chance = random.Random(5)
    return history.commit({f"f{number}": chance.randbytes(20_000) for number in range(10)})


def keys(world: World) -> list[str]:
    return [stat.key for stat in world.cache.list()]


def test_pack_that_was_pushed_whole_is_not_built_again(world: World, history: History, tip: str) -> None:
    assert world.push_mpack(history, tip).status_code == 200
    world.drain()
    assert keys(world) == []
    assert set(cached(world).values()) == set(pushed_mpacks(world))
    assert fetch_mpack(world) == model(history, [tip])


def test_second_push_makes_a_pack_of_its_own(world: World, history: History, tip: str) -> None:
    world.push_mpack(history, tip)
    world.drain()
    child = history.commit({"f0": b"other"}, tip)
    assert world.push_mpack(history, child).status_code == 200
    world.drain()
    (mpack_id,) = set(cached(world).values())
    assert keys(world) == [cache_key(world.repository_id, mpack_id)]
    assert fetch_mpack(world) == model(history, [child])


def test_pack_with_more_than_a_clone_needs_is_not_it(world: World, history: History, tip: str) -> None:
    """A forced push leaves a commit behind: a clone must not bring it."""
    child = history.commit({"f0": b"other"}, tip)
    world.push_mpack(history, child)
    mpack_id, raw = history.mpack([tip], without=history.objects_of([tip]))
    assert world.push_bytes(mpack_id, raw, tip, force=True).status_code == 200
    world.drain()
    assert len(keys(world)) == 1
    assert fetch_mpack(world) == model(history, [tip])


def test_clone_is_built_again_when_the_pack_is_gone_from_the_archive(world: World, history: History, tip: str) -> None:
    """As after a repack, which makes another pack of it."""
    world.push_mpack(history, tip)
    world.drain()
    (mpack_id,) = pushed_mpacks(world)
    with world.archive.get(archive_key(world.repository_id, mpack_id)) as body:
        raw = b"".join(body)
    url = world.post("/fetch/mpack", {}).get_json()["url"]
    assert world.client.get(url, headers={"Range": "bytes=5-"}).data == raw[5:]
    with world.hub.services.sessions.begin() as session:
        session.connection().exec_driver_sql("UPDATE hub.mpack SET state = 'quarantined'")
    refused(world.client.get(url), 404, "ask for a new URL")
    refused(world.post("/fetch/mpack", {}), 503)
    assert jobs(world, PREBUILD, "pending")
    assert world.push_bytes(mpack_id, raw, tip).status_code == 200
    world.drain()
    assert fetch_mpack(world) == model(history, [tip])
