"""Tokens by the JSON API: made, listed and ended by their own user."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hub.accounts import create_token
from hub.auth import Right
from tests.hub.api.calls import call, good
from tests.hub.offers import Unchanged, refused
from tests.hub.world import History, World

pytestmark = pytest.mark.integration

NEW = {"label": "ci", "scopes": ["write"]}


def test_new_token_works_and_its_text_is_shown_once(world: World, history: History) -> None:
    made = good(call(world, "POST", "/tokens", NEW), 201)
    token = made["token"]
    assert made["scopes"] == ["read", "write"]
    assert good(call(world, "GET", "/whoami", token=token))["label"] == "ci"
    assert world.push_muse(history, history.line(1)[0], token=token).status_code == 200
    listed = call(world, "GET", "/tokens")
    assert token not in listed.text
    newest, own = good(listed)["tokens"]
    assert (newest["token_id"], newest["label"], newest["revoked_at"]) == (made["token_id"], "ci", None)
    assert newest["used_at"] is not None
    assert own["scopes"] == ["read", "write", "admin"]


def test_token_ends_at_once_and_for_its_own_user_only(world: World) -> None:
    made = good(call(world, "POST", "/tokens", NEW), 201)
    bob = world.user("bob")
    refused(call(world, "DELETE", f"/tokens/{made['token_id']}", token=bob), 404, "token")
    assert call(world, "GET", "/whoami", token=made["token"]).status_code == 200
    assert good(call(world, "DELETE", f"/tokens/{made['token_id']}")) == {"revoked": made["token_id"]}
    refused(call(world, "GET", "/whoami", token=made["token"]), 401)
    assert good(call(world, "DELETE", f"/tokens/{made['token_id']}"))
    assert good(call(world, "GET", "/tokens"))["tokens"][0]["revoked_at"] is not None


def test_token_of_a_repository_and_of_an_hour(world: World) -> None:
    data = {"scopes": ["read"], "repository": "alice/data", "expires_in": 3600}
    made = good(call(world, "POST", "/tokens", data), 201)
    left = datetime.fromisoformat(made["expires_at"]) - datetime.now(UTC)
    assert timedelta(minutes=59) < left <= timedelta(hours=1)
    assert made["repository"] == good(call(world, "GET", "/tokens"))["tokens"][0]["repository"] == "alice/data"
    world.repository("alice/secret", private=True)
    assert call(world, "GET", "/repositories/alice/secret", token=made["token"]).status_code == 404


def test_repository_of_a_token_must_be_one_that_may_be_read(world: World) -> None:
    world.user("bob")
    world.repository("bob/secret", private=True)
    for path in ("bob/secret", "bob/none"):
        refused(call(world, "POST", "/tokens", NEW | {"repository": path}), 404)


def test_token_can_make_no_greater_one(world: World) -> None:
    with world.hub.services.sessions.begin() as session:
        weak = [
            create_token(session, "alice", scope=Right.WRITE)[1],
            create_token(session, "alice", repository_id=world.repository_id)[1],
        ]
    with Unchanged(world):
        for token in weak:
            for method, path in (("POST", "/tokens"), ("GET", "/tokens")):
                refused(call(world, method, path, NEW if method == "POST" else None, token=token), 403)
        refused(call(world, "POST", "/tokens", NEW, token=None), 401)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"scopes": None}, "scopes"),
        ({"scopes": []}, "scopes"),
        ({"scopes": "write"}, "scopes"),
        ({"scopes": ["own"]}, "scopes"),
        ({"scopes": [[]]}, "scopes"),
        ({"label": "x" * 101}, "label"),
        ({"label": "a\nb"}, "label"),
        ({"label": 5}, "label"),
        ({"expires_in": 0}, "expires_in"),
        ({"expires_in": -5}, "expires_in"),
        ({"expires_in": 1.5}, "expires_in"),
        ({"expires_in": True}, "expires_in"),
        ({"expires_in": 10**12}, "expires_in"),
        ({"repository": "x"}, "repository"),
        ({"superuser": True}, "body"),
    ],
)
def test_bad_field_is_named(world: World, change: dict[str, Any], field: str) -> None:
    with Unchanged(world):
        answer = call(world, "POST", "/tokens", NEW | change)
        refused(answer, 422)
        assert answer.get_json()["field"] == field


def test_pages_have_every_token_once_newest_first(world: World) -> None:
    made = [good(call(world, "POST", "/tokens", NEW | {"label": str(number)}), 201)["label"] for number in range(4)]
    found: list[str] = []
    after: dict[str, Any] = {}
    while True:
        said = good(call(world, "GET", "/tokens", query_string={"limit": 2, **after}))
        found += [item["label"] for item in said["tokens"]]
        if said["next"] is None:
            break
        after = {"after": said["next"]}
    assert found == [*reversed(made), ""]
    refused(call(world, "GET", "/tokens", query_string={"after": "x"}), 422, "after")
