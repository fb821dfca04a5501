"""What a repository learns from its first pushes, and tells to clones."""

from __future__ import annotations

from typing import Any

import pytest

from tests.hub.offers import Offer, commit, push, snapshot
from tests.hub.world import History, World

pytestmark = pytest.mark.integration

UUID_1 = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
UUID_2 = "6fa459ea-ee8a-3ca4-894e-db77e160355e"
TREE = snapshot({})


@pytest.fixture(params=["mpack", "muse"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def said(world: World) -> dict[str, Any]:
    return dict(world.get("/refs").get_json())


def push_root(world: World, transport: str, branch: str = "main", **changes: Any) -> None:
    root = commit(TREE, message=branch, **changes)
    assert push(world, transport, Offer([root], [TREE], branch=branch)).status_code == 200


def test_repository_has_an_id_before_the_first_push(world: World) -> None:
    assert said(world)["repo_id"] == str(world.repository_id)


def test_id_of_the_first_root_commit_is_taken_over(world: World, transport: str) -> None:
    """So that the source and its clones stamp their commits alike."""
    push_root(world, transport, repo_id=UUID_1)
    push_root(world, transport, "other", repo_id=UUID_2)
    assert said(world)["repo_id"] == UUID_1


@pytest.mark.parametrize("repo_id", ["", "my-repo", "x" * 36, UUID_1 + "\n", "{" + UUID_1 + "}"])
def test_id_that_is_no_uuid_is_not_taken_over(world: World, transport: str, repo_id: str) -> None:
    push_root(world, transport, repo_id=repo_id)
    assert said(world)["repo_id"] == str(world.repository_id)


def test_id_of_a_commit_that_is_no_root_is_not_taken_over(world: World, transport: str) -> None:
    root = commit(TREE, repo_id="")
    child = commit(TREE, root["commit_id"], message="child", repo_id=UUID_1)
    assert push(world, transport, Offer([child, root], [TREE])).status_code == 200
    assert said(world)["repo_id"] == str(world.repository_id)


def test_domain_is_learned_from_a_delta(world: World, transport: str) -> None:
    assert said(world)["domain"] == "code"
    root = commit(TREE)
    child = commit(TREE, root["commit_id"], message="m2", structured_delta={"ops": [], "domain": "midi"})
    assert push(world, transport, Offer([child, root], [TREE])).status_code == 200
    assert said(world)["domain"] == "midi"


def test_domain_that_was_given_stays(world: World, transport: str) -> None:
    world.repository("alice/song", domain="midi")
    world.base = "/alice/song"
    assert said(world)["domain"] == "midi"
    push_root(world, transport, structured_delta={"domain": "scaffold"})
    assert said(world)["domain"] == "midi"


@pytest.mark.parametrize("delta", [None, {}, {"domain": None}, {"domain": "Not A Domain"}, {"domain": ["midi"]}])
def test_delta_without_a_domain_changes_nothing(world: World, transport: str, delta: Any) -> None:
    push_root(world, transport, structured_delta=delta)
    assert said(world)["domain"] == "code"


def test_first_branch_without_a_slash_is_the_default(world: World, transport: str) -> None:
    """The Muse client can't clone a default branch whose name has one."""
    push_root(world, transport, "feature/x")
    assert said(world)["default_branch"] == "main"
    push_root(world, transport, "trunk")
    push_root(world, transport, "main")
    assert said(world)["default_branch"] == "trunk"
    assert next(iter(said(world)["branch_heads"])) == "trunk"


def test_refused_push_teaches_nothing(world: World, history: History) -> None:
    tree = snapshot({"lost": "ab" * 32})
    offer = Offer([commit(tree, repo_id=UUID_1, structured_delta={"domain": "midi"})], [tree], branch="trunk")
    assert push(world, "mpack", offer).status_code == 422
    assert said(world) | {"snapshots": {}, "inline_bytes": 0} == {
        "repo_id": str(world.repository_id), "domain": "code", "default_branch": "main", "branch_heads": {},
        "snapshots": {}, "inline_bytes": 0,
    }  # fmt: skip


def test_domain_is_learned_from_the_attributes_where_no_commit_tells_it(world: World, history: History) -> None:
    """The first commit of a history has no delta."""
    tip = history.commit({".museattributes": b'[meta]\ndomain = "midi"\n', "a": b"a"})
    assert world.push_mpack(history, tip).status_code == 200
    assert said(world)["domain"] == "code"
    world.drain()
    assert said(world)["domain"] == "midi"


@pytest.mark.parametrize(
    "attributes",
    [b"", b"[meta", b"meta = 1", b"[meta]", b"[meta]\ndomain = 7", b'[meta]\ndomain = "../x"', b"\xff", b"[" * 20000],
)
def test_attributes_that_name_no_domain_change_nothing(world: World, history: History, attributes: bytes) -> None:
    tip = history.commit({".museattributes": attributes})
    assert world.push_mpack(history, tip).status_code == 200
    world.drain()
    assert said(world)["domain"] == "code"


def test_attributes_do_not_change_a_domain_that_was_given(world: World, history: History) -> None:
    world.repository_id, world.base = world.repository("alice/given", domain="score"), "/alice/given"
    tip = history.commit({".museattributes": b'[meta]\ndomain = "midi"\n'})
    assert world.push_mpack(history, tip).status_code == 200
    world.drain()
    assert said(world)["domain"] == "score"
