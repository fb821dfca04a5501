"""Releases and tags, as the Muse client sends and reads them."""

from __future__ import annotations

import json
from typing import Any

import msgpack
import pytest
from werkzeug.test import TestResponse

from tests.hub.world import MUSE_ACCEPT, History, World

pytestmark = pytest.mark.integration


@pytest.fixture
def tip(world: World, history: History) -> str:
    commit_id = history.line(2)[-1]
    assert world.push_muse(history, commit_id).status_code == 200
    return commit_id


def release(commit_id: str, tag: str = "v1.2.0", **others: Any) -> dict[str, Any]:
    return {
        "release_id": f"id-of-{tag}",
        "repo_id": "5b1c9a52-6f0e-4f6a-9d0f-0d6c3f1d2a11",
        "tag": tag,
        "semver": {"major": 1, "minor": 2, "patch": 0, "pre": "", "build": ""},
        "channel": "stable",
        "commit_id": commit_id,
        "snapshot_id": "0" * 64,
        "title": "Größer",
        "body": "",
        "changelog": [{"commit_id": commit_id, "message": "m", "agent_id": "a", "committed_at": "2026-03-24"}],
        "agent_id": "",
        "model_id": "",
        "is_draft": False,
        "gpg_signature": "",
        "created_at": "2026-03-24T12:00:00+00:00",
    } | others


def create(world: World, record: dict[str, Any], token: str | None = "") -> TestResponse:
    """`muse release push`: JSON goes, msgpack comes."""
    headers = world.headers(token) | {"Accept": MUSE_ACCEPT}
    return world.client.post(f"{world.base}/releases", json=record, headers=headers)


def listed(world: World, query: str = "", token: str | None = "") -> list[dict[str, Any]]:
    answer = world.get(f"/releases{query}", token=token, muse=True)
    assert answer.status_code == 200, answer.text
    return list(msgpack.unpackb(answer.data)["releases"])


def test_a_release_comes_back_as_it_was_sent(world: World, tip: str) -> None:
    record = release(tip)
    answer = create(world, record)
    assert answer.status_code == 201
    assert msgpack.unpackb(answer.data) == {"release_id": "id-of-v1.2.0"}
    assert listed(world, token=None) == [record]


def test_releases_are_listed_newest_first(world: World, tip: str) -> None:
    for tag in ("v1.2.0", "1.2.0-beta.1", "v1.2.0+build"):
        assert create(world, release(tip, tag)).status_code == 201
    assert [item["tag"] for item in listed(world)] == ["v1.2.0+build", "1.2.0-beta.1", "v1.2.0"]


def test_a_list_is_one_that_the_client_reads(world: World, tip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for patch in range(5):
        assert create(world, release(tip, f"v1.2.{patch}", semver=None, body="x" * 1000)).status_code == 201
    monkeypatch.setattr("hub.releases.LIST_BYTES", 5000)
    assert [item["tag"] for item in listed(world)] == ["v1.2.4", "v1.2.3", "v1.2.2"]


def test_a_channel_is_taken_from_the_tag_when_none_is_sent(world: World, tip: str) -> None:
    create(world, release(tip, "1.2.0-beta.1", channel=""))
    create(world, release(tip))
    assert [item["tag"] for item in listed(world, "?channel=beta")] == ["1.2.0-beta.1"]


def test_drafts_are_shown_to_writers_who_ask(world: World, tip: str) -> None:
    create(world, release(tip, is_draft=True))
    assert listed(world) == []
    assert len(listed(world, "?include_drafts=1")) == 1
    assert world.get("/releases?include_drafts=1", token=None).status_code == 401


def test_a_taken_tag_is_a_conflict_and_changes_nothing(world: World, tip: str) -> None:
    create(world, release(tip))
    assert create(world, release(tip, title="Another", release_id="other")).status_code == 409
    assert listed(world)[0]["title"] == "Größer"


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"tag": "1.02.0"}, "tag"),
        ({"tag": "v1.2"}, "tag"),
        ({"tag": "v1.2.0\n"}, "tag"),
        ({"channel": "gamma"}, "channel"),
        ({"is_draft": "no"}, "is_draft"),
        ({"commit_id": "a" * 64}, "commit_id"),
        ({"commit_id": "HEAD"}, "commit_id"),
        ({"release_id": None}, "release_id"),
        ({"semver": {"major": 2, "minor": 2, "patch": 0}}, "semver"),
        ({"body": "x" * 2_000_000}, "release"),
        ({"semver": {"major": True, "minor": 2, "patch": 0}}, "semver"),
        ({"semver": {"major": 1.0, "minor": 2, "patch": 0}}, "semver"),
        ({"title": 2**70}, "release"),
        ({"title": float("nan")}, "release"),
        ({"changelog": [{"weight": float("-inf")}]}, "release"),
    ],
)
def test_a_bad_release_is_refused_by_its_field(world: World, tip: str, wrong: dict[str, Any], named: str) -> None:
    answer = create(world, release(tip) | wrong)
    assert answer.status_code == 422
    assert answer.text.startswith(f"{named}: ")
    assert listed(world) == []


def test_half_a_surrogate_pair_is_refused(world: World, tip: str) -> None:
    body = json.dumps(release(tip, title="\ud800"))
    answer = world.client.post(
        f"{world.base}/releases", data=body, content_type="application/json", headers=world.headers()
    )
    assert answer.status_code == 422


@pytest.mark.parametrize("title", [b"bytes", msgpack.Timestamp(1, 2), msgpack.ExtType(5, b"x")])
def test_what_no_json_can_say_is_refused_in_msgpack_too(world: World, tip: str, title: object) -> None:
    """Once stored, it would be an error for every reader of the list."""
    assert world.post("/releases", release(tip, title=title), muse=True).status_code == 422
    assert world.get("/releases").get_json() == {"releases": []}


@pytest.mark.parametrize("tag", ["%00", "v1.2.0%00", "%ff", "x" * 600, "main", "..", "%2e%2e"])
def test_deleting_what_is_no_tag_is_not_found(world: World, tip: str, tag: str) -> None:
    create(world, release(tip))
    assert world.client.delete(f"{world.base}/releases/{tag}", headers=world.headers()).status_code == 404
    assert len(listed(world)) == 1


def test_a_deleted_release_is_gone_and_deleting_it_again_is_not_found(world: World, tip: str) -> None:
    create(world, release(tip, "v1.2.0+build"))
    url = f"{world.base}/releases/v1.2.0%2Bbuild"
    assert world.client.delete(url, headers=world.headers()).status_code == 200
    assert listed(world) == []
    assert world.client.delete(url, headers=world.headers()).status_code == 404


def test_only_writers_change_releases(world: World, tip: str) -> None:
    stranger = world.user("bob")
    assert create(world, release(tip), token=stranger).status_code == 403
    assert create(world, release(tip), token=None).status_code == 401
    create(world, release(tip))
    assert world.client.delete(f"{world.base}/releases/v1.2.0", headers=world.headers(stranger)).status_code == 403


def tag(commit_id: str, tag_id: str, label: str = "emotion:joyful") -> dict[str, str]:
    return {"tag_id": tag_id, "repo_id": "r", "commit_id": commit_id, "tag": label, "created_at": "2026-03-24"}


def test_one_label_sits_on_many_commits_and_a_tag_never_moves(world: World, history: History, tip: str) -> None:
    first = history.ancestors(tip)[-1]
    answer = world.post("/tags", {"tags": [tag(tip, "t1"), tag(first, "t2"), tag(tip, "t1")]}, muse=True)
    assert msgpack.unpackb(answer.data) == {"stored": 2}
    again = world.post("/tags", {"tags": [tag(first, "t1"), tag(first, "t3")]}, muse=True)
    assert msgpack.unpackb(again.data) == {"stored": 1}


def test_many_tags_are_one_request(world: World, tip: str) -> None:
    """More than one statement could carry as parameters."""
    answer = world.post("/tags", {"tags": [tag(tip, f"t{number}") for number in range(14_000)]}, muse=True)
    assert msgpack.unpackb(answer.data) == {"stored": 14_000}


@pytest.mark.parametrize("wrong", [[1], [{"tag_id": "t"}], "x", [tag("f" * 64, "t")]])
def test_a_bad_tag_is_refused(world: World, tip: str, wrong: object) -> None:
    assert tip
    assert world.post("/tags", {"tags": wrong}, muse=True).status_code == 422


def test_only_writers_tag(world: World, tip: str) -> None:
    assert world.post("/tags", {"tags": [tag(tip, "t")]}, token=world.user("bob")).status_code == 403
