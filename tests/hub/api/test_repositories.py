"""Repositories by the JSON API."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest

from hub.accounts import create_token
from hub.auth import Right
from tests.hub.api.calls import call, good
from tests.hub.offers import Unchanged, refused
from tests.hub.world import History, World

pytestmark = pytest.mark.integration

NEW = {"name": "new", "visibility": "private"}


class TestCreate:
    def test_repository_is_the_callers_and_can_be_pushed_to(self, world: World, history: History) -> None:
        made = good(call(world, "POST", "/repositories", NEW), 201)
        assert UUID(made.pop("repo_id"))
        assert made == {
            "owner": "alice", "name": "new", "visibility": "private", "default_branch": None, "domain": "code",
            "url": "http://localhost/alice/new",
        }  # fmt: skip
        world.base = "/alice/new"
        refused(world.get("/refs", token=None), 404)
        assert world.push_muse(history, history.line(1)[0]).status_code == 200

    def test_default_branch_and_domain_are_kept(self, world: World, history: History) -> None:
        more = {"owner": "alice", "visibility": "public", "default_branch": "trunk", "domain": "midi"}
        made = good(call(world, "POST", "/repositories", NEW | more), 201)
        assert (made["default_branch"], made["domain"]) == ("trunk", "midi")
        world.base = "/alice/new"
        assert world.push_muse(history, history.line(1)[0], "main").status_code == 200
        refs = world.get("/refs").get_json()
        assert (refs["default_branch"], refs["domain"]) == ("trunk", "midi")

    def test_second_of_a_name_is_a_conflict_also_when_both_come_at_once(self, world: World) -> None:
        def make(_: int) -> int:
            answer = world.app.test_client().post("/api/repositories", json=NEW, headers=world.headers())
            return answer.status_code

        with ThreadPoolExecutor(4) as pool:
            assert sorted(pool.map(make, range(4))) == [201, 409, 409, 409]
        answer = call(world, "POST", "/repositories", NEW)
        refused(answer, 409, "alice/new")
        assert answer.get_json()["error"] == "EXISTS"

    def test_nobody_makes_repositories_for_others_but_a_superuser(self, world: World) -> None:
        bob, root = world.user("bob"), world.user("root", is_superuser=True)
        for owner in ("alice", "nobody"):
            refused(call(world, "POST", "/repositories", NEW | {"owner": owner}, token=bob), 403, "your own")
        assert good(call(world, "POST", "/repositories", NEW | {"owner": "bob"}, token=root), 201)["owner"] == "bob"
        refused(call(world, "POST", "/repositories", NEW | {"owner": "nobody"}, token=root), 404, "nobody")

    def test_token_must_be_good_for_it(self, world: World) -> None:
        refused(call(world, "POST", "/repositories", NEW, token=None), 401)
        with world.hub.services.sessions.begin() as session:
            reading = create_token(session, "alice", scope=Right.READ)[1]
            of_one = create_token(session, "alice", repository_id=world.repository_id)[1]
        with Unchanged(world):
            refused(call(world, "POST", "/repositories", NEW, token=reading), 403, "scope write")
            refused(call(world, "POST", "/repositories", NEW, token=of_one), 403, "one repository")

    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"name": None}, "name"),
            ({"name": "../x"}, "name"),
            ({"name": "Upper"}, "name"),
            ({"name": 7}, "name"),
            ({"name": "a\0b"}, "name"),
            ({"name": "\ud800"}, "name"),
            ({"visibility": None}, "visibility"),
            ({"visibility": "secret"}, "visibility"),
            ({"visibility": ["public"]}, "visibility"),
            ({"default_branch": "a/b"}, "default_branch"),
            ({"default_branch": "a..b"}, "default_branch"),
            ({"default_branch": True}, "default_branch"),
            ({"domain": "Code!"}, "domain"),
            ({"domain": {}}, "domain"),
            ({"owner": []}, "owner"),
            ({"color": "red"}, "body"),
        ],
    )
    def test_bad_field_is_named(self, world: World, change: dict[str, Any], field: str) -> None:
        with Unchanged(world):
            answer = call(world, "POST", "/repositories", NEW | change)
            refused(answer, 422)
            assert answer.get_json()["field"] == field


class TestBody:
    """Bodies that are no small JSON object; one call stands for all."""

    @pytest.mark.parametrize(
        "body",
        [
            b"{", b"[]", b"7", b"null", b'"name"', b"{}{}", b'{"name": NaN}', b'{"name": 1e999}',
            b'{"name": "a", "name": "b"}', b"\xff\xfe", b"\x81\xa4name\xa1x", b'{"name": ' + b"9" * 5000 + b"}",
            b"[" * 30_000, b'{"name":' * 8_000, b'{"name": "\xc3\x28"}',
        ],
        ids=range(15),
    )  # fmt: skip
    def test_body_that_is_no_object_is_refused(self, world: World, body: bytes) -> None:
        with Unchanged(world):
            answer = call(world, "POST", "/repositories", data=body, content_type="application/json")
            refused(answer, 422)

    @pytest.mark.parametrize("lied", [None, 10])
    def test_large_body_is_refused_whatever_length_it_claims(self, world: World, lied: int | None) -> None:
        body = b'{"name": "' + b"x" * 70_000 + b'"}'
        options: dict[str, Any] = {}
        if lied is not None:
            options["environ_overrides"] = {"CONTENT_LENGTH": "", "wsgi.input_terminated": True}
        answer = call(world, "POST", "/repositories", data=body, content_type="application/json", **options)
        refused(answer, 413, "65536")

    def test_content_type_does_not_matter(self, world: World) -> None:
        answer = call(world, "POST", "/repositories", data=b'{"name": "x", "visibility": "public"}')
        assert good(answer, 201)["name"] == "x"
