"""The commits of a branch, page by page."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import hub.commit_log
from tests.hub.offers import refused
from tests.hub.racing import pushed
from tests.hub.world import History, World

pytestmark = pytest.mark.integration


def page(world: World, **query: Any) -> dict[str, Any]:
    answer = world.client.get("/api/repositories/alice/data/commits", query_string=query)
    assert answer.status_code == 200, answer.data
    return dict(answer.get_json())


def pages(world: World, **query: Any) -> list[dict[str, Any]]:
    """All commits; each page asked for where the last one ended."""
    found: list[dict[str, Any]] = []
    after: dict[str, str] = {}
    while True:
        said = page(world, **query, **after)
        assert said["commits"] or not found
        found += said["commits"]
        if said["next"] is None:
            return found
        after = {"after": said["next"]}


def tangle(history: History, seed: int, count: int = 60) -> tuple[str, str]:
    """A history with many branches and merges; its tip, and an old commit that the tip does not reach."""
    chance = random.Random(seed)
    ids = [history.commit({"f": b"0"})]
    outside = history.commit({"f": b"outside"}, ids[0])
    for number in range(1, count):
        parents = chance.sample(ids[-12:], k=min(len(ids[-12:]), chance.choice([1, 1, 2])))
        ids.append(history.commit({"f": b"%d" % number}, *parents))
    while True:
        inner = {p for c in history.commits.values() for p in (c["parent_commit_id"], c["parent2_commit_id"])}
        loose = [commit_id for commit_id in ids if commit_id not in inner]
        if len(loose) == 1:
            return loose[0], outside
        ids.append(history.commit({"f": b"merge"}, *loose[:2]))


def in_order(history: History, found: list[str]) -> bool:
    """Every commit before its parents."""
    place = {commit_id: number for number, commit_id in enumerate(found)}
    return all(
        place[commit_id] < place[parent]
        for commit_id in found
        for parent in (history.commits[commit_id]["parent_commit_id"], history.commits[commit_id]["parent2_commit_id"])
        if parent
    )


@pytest.mark.parametrize("starts_max", [50, 1], ids=["narrow cursor", "history wider than a cursor"])
@pytest.mark.parametrize("limit", [1, 7, 200])
def test_pages_have_every_commit_once_and_children_first(
    world: World, history: History, monkeypatch: pytest.MonkeyPatch, limit: int, starts_max: int
) -> None:
    monkeypatch.setattr(hub.commit_log, "STARTS_MAX", starts_max)
    tip, outside = tangle(history, seed=limit)
    pushed(world.push_mpack(history, tip))
    pushed(world.push_mpack(history, outside, "other"))
    found = [commit["commit_id"] for commit in pages(world, limit=limit)]
    assert sorted(found) == sorted(history.ancestors(tip))
    assert in_order(history, found)


def test_commit_is_shown_as_it_was_pushed(world: World, history: History) -> None:
    first = history.commit({"f": b"1"}, message="Grüße\n\nbody", author="Ada", branch="dev")
    tip = history.commit({"f": b"2"}, first)
    pushed(world.push_muse(history, tip))
    newest, oldest = page(world)["commits"]
    assert newest["parents"] == [first]
    assert oldest == {
        "commit_id": first, "parents": [], "author": "Ada", "branch": "dev", "message": "Grüße\n\nbody",
        "committed_at": history.commits[first]["committed_at"],
    }  # fmt: skip


def test_ref_is_a_branch_or_a_commit(world: World, history: History) -> None:
    first, second = history.line(2)
    pushed(world.push_mpack(history, first))
    pushed(world.push_mpack(history, second, "dev/x"))
    assert [item["commit_id"] for item in page(world)["commits"]] == [first]
    assert [item["commit_id"] for item in page(world, ref="dev/x")["commits"]] == [second, first]
    assert [item["commit_id"] for item in page(world, ref=second)["commits"]] == [second, first]


def test_empty_repository_has_no_commits(world: World) -> None:
    assert page(world) == {"commits": [], "next": None}


def test_page_goes_on_where_it_ended_though_the_branch_moves(world: World, history: History) -> None:
    ids = history.line(5)
    pushed(world.push_mpack(history, ids[2]))
    said = page(world, limit=2)
    pushed(world.push_mpack(history, ids[4]))
    assert [item["commit_id"] for item in page(world, limit=2, after=said["next"])["commits"]] == [ids[0]]


def test_long_messages_make_short_pages(world: World, history: History) -> None:
    ids: list[str] = []
    for number in range(4):
        ids.append(history.commit({"f": b"%d" % number}, *ids[-1:], message="x" * 600_000))
    pushed(world.push_mpack(history, ids[-1]))
    assert len(page(world)["commits"]) == 2
    assert [item["commit_id"] for item in pages(world)] == ids[::-1]


def test_page_of_a_long_history_reads_no_more_than_it_shows(world: World, history: History) -> None:
    """The walk stops a page below its start, however much lies beneath."""
    ids = history.line(300)
    pushed(world.push_mpack(history, ids[-1]))
    with world.hub.services.sessions() as session:
        parameters = {
            "repository_id": world.repository_id, "ids": [bytes.fromhex(ids[-1])], "last": None, "limit": 11,
        }  # fmt: skip
        plan = session.execute(hub.commit_log.text("EXPLAIN (ANALYZE, FORMAT JSON) " + hub.commit_log.WALK.text)
                               .bindparams(hub.commit_log.IDS), parameters).scalar_one()  # fmt: skip

    def walked(node: dict[str, Any]) -> int:
        own = node["Actual Rows"] if node["Node Type"] == "Recursive Union" else 0
        return max([own, *(walked(child) for child in node.get("Plans", []))])

    assert 11 <= walked(plan[0]["Plan"]) <= 13


@pytest.mark.parametrize(
    ("query", "status", "word"),
    [
        ({"ref": "nothing"}, 404, "in this repository"),
        ({"ref": "ab" * 32}, 404, "in this repository"),
        ({"ref": "a\0b"}, 404, "in this repository"),
        ({"after": "x"}, 422, "after"),
        ({"after": "ab" * 32}, 422, "after"),
        ({"limit": "0"}, 422, "limit"),
        ({"limit": "201"}, 422, "limit"),
        ({"limit": "-1"}, 422, "limit"),
        ({"limit": "²"}, 422, "limit"),
    ],
)
def test_bad_parameter_is_refused(
    world: World, history: History, query: dict[str, str], status: int, word: str
) -> None:
    pushed(world.push_mpack(history, history.line(1)[0]))
    refused(world.client.get("/api/repositories/alice/data/commits", query_string=query), status, word)


def test_cursor_of_another_repository_shows_nothing_of_it(new_world: Callable[..., World], history: History) -> None:
    world = new_world()
    secret = world.repository("alice/secret", private=True)
    ids = history.line(3)
    pushed(world.push_mpack(history, ids[-1]))
    after = page(world, limit=1)["next"]
    world.repository_id, world.base = secret, "/alice/secret"
    said = world.client.get(
        "/api/repositories/alice/secret/commits", query_string={"after": after}, headers=world.headers()
    ).get_json()
    assert said == {"commits": [], "next": None}
