"""Repositories by the JSON API."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest

import hub.push
from hub.accounts import create_token, grant
from hub.auth import Right
from hub.repositories import restore_repository
from tests.hub.api.calls import call, good
from tests.hub.offers import Unchanged, refused
from tests.hub.racing import at_tip, pushed
from tests.hub.views import rows
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


class TestList:
    def paths(self, world: World, token: str | None, **query: Any) -> list[str]:
        said = good(call(world, "GET", "/repositories", token=token, query_string=query))
        return [f"{item['owner']}/{item['name']}" for item in said["repositories"]]

    def test_each_caller_sees_what_they_may_read(self, world: World) -> None:
        bob, root = world.user("bob"), world.user("root", is_superuser=True)
        for path in ("alice/secret", "alice/shared", "bob/own"):
            world.repository(path, private=True)
        with world.hub.services.sessions.begin() as session:
            grant(session, "alice/shared", "bob", "read")
            only = create_token(session, "alice", repository_id=world.repository("alice/one", private=True))[1]
        assert self.paths(world, None) == ["alice/data"]
        assert self.paths(world, bob) == ["alice/data", "alice/shared", "bob/own"]
        assert self.paths(world, world.token) == ["alice/data", "alice/one", "alice/secret", "alice/shared"]
        assert self.paths(world, only) == ["alice/data", "alice/one"]
        assert len(self.paths(world, root)) == 5
        refused(call(world, "GET", "/repositories", token="ph_wrong"), 401)

    def test_pages_have_every_repository_once(self, world: World) -> None:
        world.user("bob")
        for number in range(5):
            world.repository(f"bob/r{number}")
        found, after = [], {}
        for _ in range(3):
            said = good(call(world, "GET", "/repositories", query_string={"limit": 2, **after}))
            found += [item["name"] for item in said["repositories"]]
            after = {"after": said["next"]}
        assert found == ["data", "r0", "r1", "r2", "r3", "r4"]
        assert said["next"] is None

    @pytest.mark.parametrize("query", [{"after": "x"}, {"after": "A/b"}, {"limit": "x"}])
    def test_bad_parameter_is_named(self, world: World, query: dict[str, str]) -> None:
        answer = call(world, "GET", "/repositories", query_string=query)
        refused(answer, 422)
        assert answer.get_json()["field"] in query


class TestChange:
    def test_private_repository_is_gone_for_strangers_at_once(self, world: World) -> None:
        assert world.get("/refs", token=None).status_code == 200
        changed = good(call(world, "PATCH", "/repositories/alice/data", {"visibility": "private"}))
        assert changed == good(call(world, "GET", "/repositories/alice/data"))
        assert changed["visibility"] == "private"
        refused(world.get("/refs", token=None), 404)
        assert "alice/data" not in world.client.get("/").text

    def test_default_branch_must_be_a_branch(self, world: World, history: History) -> None:
        path = "/repositories/alice/data"
        assert good(call(world, "PATCH", path, {"default_branch": "trunk"}))["default_branch"] == "trunk"
        pushed(world.push_mpack(history, history.line(1)[0], "main"))
        assert good(call(world, "PATCH", path, {"default_branch": "main"}))["default_branch"] == "main"
        for name in ("absent", "a/b", "..", 7):
            answer = call(world, "PATCH", path, {"default_branch": name})
            refused(answer, 422)
            assert answer.get_json()["field"] == "default_branch"
        assert world.get("/refs").get_json()["default_branch"] == "main"

    def test_changes_are_logged_with_what_was_before_and_no_change_is_not(self, world: World) -> None:
        for visibility in ("private", "private", "public"):
            call(world, "PATCH", "/repositories/alice/data", {"visibility": visibility})
        entries = good(call(world, "GET", "/repositories/alice/data/audit"))["entries"]
        changes = [item for item in entries if item["action"] == "repository.change"]
        assert [(item["old_visibility"], item["visibility"]) for item in changes] == [
            ("private", "public"), ("public", "private")
        ]  # fmt: skip
        assert {item["via"] for item in changes} == {"api"}


class TestDelete:
    def test_deleted_repository_is_gone_and_loses_nothing(self, world: World, history: History) -> None:
        tip = history.line(3)[-1]
        pushed(world.push_mpack(history, tip))
        good(call(world, "DELETE", "/repositories/alice/data"))
        refused(world.get("/refs"), 404)
        refused(call(world, "GET", "/repositories/alice/data"), 404)
        assert good(call(world, "GET", "/repositories"))["repositories"] == []
        world.drain()
        with world.hub.services.sessions.begin() as session:
            restore_repository(session, "alice/data")
        at_tip(world, history, tip)

    def test_name_is_free_for_another_one(self, world: World, history: History) -> None:
        pushed(world.push_mpack(history, history.line(1)[0]))
        good(call(world, "DELETE", "/repositories/alice/data"))
        made = good(call(world, "POST", "/repositories", NEW | {"name": "data"}), 201)
        assert made["repo_id"] != str(world.repository_id)
        assert world.get("/refs").get_json()["branch_heads"] == {}

    def test_push_that_was_under_way_is_refused(
        self, world: World, history: History, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = hub.push.store_pack

        def delete_meanwhile(*given: Any) -> None:
            store(*given)
            good(call(world, "DELETE", "/repositories/alice/data"))

        monkeypatch.setattr(hub.push, "store_pack", delete_meanwhile)
        refused(world.push_mpack(history, history.line(1)[0]), 404, "deleted")
        assert rows(world, "SELECT count(*) FROM hub.push")[0][0] == 0


class TestCollaborators:
    PATH = "/repositories/alice/data/collaborators"

    def test_roles_are_set_listed_and_taken_away(self, world: World, history: History) -> None:
        bob, _ = world.user("bob"), world.user("carol")
        tip = history.line(1)[0]
        assert good(call(world, "PUT", f"{self.PATH}/bob", {"role": "read"})) == {"name": "bob", "role": "read"}
        assert world.push_muse(history, tip, token=bob).status_code == 403
        good(call(world, "PUT", f"{self.PATH}/bob", {"role": "write"}))
        good(call(world, "PUT", f"{self.PATH}/carol", {"role": "admin"}))
        assert world.push_muse(history, tip, token=bob).status_code == 200
        first = good(call(world, "GET", self.PATH, query_string={"limit": 1}))
        assert first == {"collaborators": [{"name": "bob", "role": "write"}], "next": "bob"}
        second = good(call(world, "GET", self.PATH, query_string={"after": "bob"}))
        assert second == {"collaborators": [{"name": "carol", "role": "admin"}], "next": None}
        good(call(world, "DELETE", f"{self.PATH}/bob"))
        assert world.push_muse(history, tip, "dev", token=bob).status_code == 403
        refused(call(world, "DELETE", f"{self.PATH}/bob"), 404, "bob")

    @pytest.mark.parametrize("data", [{}, {"role": "owner"}, {"role": None}, {"role": ["read"]}, {"role": {}}])
    def test_role_must_be_one_of_three(self, world: World, data: dict[str, Any]) -> None:
        world.user("bob")
        answer = call(world, "PUT", f"{self.PATH}/bob", data)
        refused(answer, 422, "read, write, admin")
        assert answer.get_json()["field"] == "role"

    def test_owner_needs_no_role_and_nobody_gets_none(self, world: World) -> None:
        refused(call(world, "PUT", f"{self.PATH}/alice", {"role": "read"}), 422, "owns")
        for name in ("nobody", "a%00b", "%ff", "x" * 2000):
            refused(call(world, "PUT", f"{self.PATH}/{name}", {"role": "read"}), 404)
        assert good(call(world, "GET", self.PATH, query_string={"after": "a\0b"}))["collaborators"] == []

    def test_same_role_set_many_times_at_once_stands(self, world: World) -> None:
        world.user("bob")

        def put(_: int) -> int:
            client = world.app.test_client()
            path = f"/api{self.PATH}/bob"
            return client.put(path, json={"role": "read"}, headers=world.headers()).status_code

        with ThreadPoolExecutor(4) as pool:
            assert set(pool.map(put, range(8))) == {200}


class TestAudit:
    def test_pages_go_back_to_the_beginning(self, world: World) -> None:
        world.user("bob")
        for role in ("read", "write", "admin"):
            call(world, "PUT", "/repositories/alice/data/collaborators/bob", {"role": role})
        found: list[str] = []
        after: dict[str, Any] = {}
        while True:
            said = good(call(world, "GET", "/repositories/alice/data/audit", query_string={"limit": 3, **after}))
            found += [item["action"] for item in said["entries"]]
            if said["next"] is None:
                break
            after = {"after": said["next"]}
        assert found == ["collaborator.set"] * 3 + ["repository.create"]

    @pytest.mark.parametrize("after", ["x", "-1", "²", "9" * 19, "1.5"])
    def test_bad_cursor_is_refused(self, world: World, after: str) -> None:
        refused(call(world, "GET", "/repositories/alice/data/audit", query_string={"after": after}), 422, "after")
