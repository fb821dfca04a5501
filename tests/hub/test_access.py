"""Who may do what, on every route: public and private, with and without a right."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import msgpack
import pytest
from sqlalchemy import text

from hub.accounts import create_token, grant, revoke_token
from hub.auth import Right
from tests.hub.offers import Unchanged, refused
from tests.hub.world import MSGPACK, MUSE_ACCEPT, History, World

pytestmark = pytest.mark.integration

ID = "ab" * 32
READS = {
    "GET {}": None,
    "GET {}/refs": None,
    "POST {}/negotiate": {"want": [ID], "have": []},
    "POST {}/fetch": {"want": [ID], "have": []},
    "POST {}/fetch/mpack": {"want": [], "have": []},
    f"GET {{}}/pushes/{uuid4()}": None,
    "GET {}/releases": None,
    "GET {}/archive/main.zip": None,
    "GET /api/repositories{}": None,
    "GET /api/repositories{}/commits": None,
    "GET /api/repositories{}/files": None,
    "GET /api/repositories{}/languages": None,
}
WRITES = {
    "POST {}/filter-objects": {"object_ids": [ID]},
    "POST {}/presign": {"object_ids": [ID], "direction": "put"},
    "POST {}/push/objects": {"objects": []},
    "POST {}/push": {"bundle": {"commits": [], "snapshots": [], "objects": []}, "branch": "main", "force": False},
    "POST {}/push/mpack/presign": {"mpack_id": ID, "size": 1, "branch": "main", "head": ID},
    "POST {}/push/mpack/abort": {"mpack_key": f"mpacks/{ID}"},
    "POST {}/releases": {},
    "POST {}/tags": {"tags": []},
    "DELETE {}/releases/v1.0.0": None,
    "POST {}/push/mpack": {"mpack_key": f"mpacks/{ID}", "branch": "main", "head": ID},
}
ADMINS: dict[str, Any] = {
    "PATCH /api/repositories{}": {},
    "DELETE /api/repositories{}": None,
    "GET /api/repositories{}/audit": None,
    "GET /api/repositories{}/collaborators": None,
    "PUT /api/repositories{}/collaborators/nobody": {"role": "owner"},
    "DELETE /api/repositories{}/collaborators/nobody": None,
}
"""Every route of a repository, by the right that it needs; {} is the repository's path."""
ALL = READS | WRITES | ADMINS
FINE = {200, 422, "unknown"}
"""The answers of those who may ask; there is neither the push, the commit nor the user that they ask for."""


@pytest.fixture
def callers(world: World) -> dict[str, str | None]:
    """Name → token. Repositories: alice/data, which all may read, and alice/secret."""
    world.repository("alice/secret", private=True)
    made: dict[str, str | None] = {name: world.user(name) for name in ("reader", "writer", "steward", "stranger")}
    made |= {"owner": world.token, "root": world.user("root", is_superuser=True), "nobody": None}
    made["wrong"] = "ph_" + "A" * 43
    with world.hub.services.sessions.begin() as session:
        for role, name in (("read", "reader"), ("write", "writer"), ("admin", "steward")):
            grant(session, "alice/data", name, role)
            grant(session, "alice/secret", name, role)
        made["expired"] = create_token(session, "alice", expires_at=datetime.now(UTC) - timedelta(seconds=1))[1]
        token_id, made["revoked"] = create_token(session, "alice")
        revoke_token(session, token_id)
    return made


def ask(world: World, base: str, route: str, data: Any, token: str | None, *, muse: bool) -> Any:
    method, path = route.split(" ")
    headers = world.headers(token) | ({"Accept": MUSE_ACCEPT} if muse else {})
    body: dict[str, Any] = {}
    if data is not None:
        body = {"json": data} if "/api/" in path else {"data": msgpack.packb(data), "content_type": MSGPACK}
    return world.client.open(path.format(base), method=method, headers=headers, **body)


def statuses(world: World, base: str, routes: dict[str, Any], token: str | None) -> set[Any]:
    """The statuses of all routes; each refusal is short and gives nothing away, and no route redirects."""
    found = set()
    for route, data in routes.items():
        for muse in (True, False):
            answer = ask(world, base, route, data, token, muse=muse)
            assert not 300 <= answer.status_code < 400
            if answer.status_code in (401, 403, 404):
                refused(answer, answer.status_code)
            unknown = answer.status_code == 404 and any(word in answer.data for word in (b"in this repo", b"no user"))
            found.add("unknown" if unknown else answer.status_code)
    return found


@pytest.mark.parametrize("name", ["wrong", "expired", "revoked"])
def test_token_that_names_nobody_is_refused_everywhere(world: World, callers: dict[str, str | None], name: str) -> None:
    with Unchanged(world):
        for base in ("/alice/data", "/alice/secret", "/alice/nothing"):
            assert statuses(world, base, ALL, callers[name]) == {401}


@pytest.mark.parametrize("name", ["stranger", "nobody"])
def test_private_repository_is_not_there_for_strangers(world: World, callers: dict[str, str | None], name: str) -> None:
    with Unchanged(world):
        for base in ("/alice/secret", "/alice/nothing", "/nobody/data"):
            assert statuses(world, base, ALL, callers[name]) == {404}


@pytest.mark.parametrize("part", ["/-/parts", "/-/page/1"])
def test_remote_url_for_parts_opens_nothing(world: World, callers: dict[str, str | None], part: str) -> None:
    """The Muse client's routes are there as well, with the same rights."""
    prefixes = ("GET {}/refs", "POST {}/negotiate", "POST {}/fetch", "POST {}/filter-objects", "POST {}/presign")
    routes = {route: data for route, data in (READS | WRITES).items() if route in (*prefixes, "POST {}/push/objects")}
    with Unchanged(world):
        assert statuses(world, f"/alice/secret{part}", routes, callers["stranger"]) == {404}
        assert statuses(world, f"/alice/secret{part}", routes, callers["revoked"]) == {401}
        writes = {route: data for route, data in routes.items() if route in WRITES}
        assert statuses(world, f"/alice/data{part}", writes, callers["reader"]) == {403}
        assert statuses(world, f"/alice/secret{part}", routes, callers["writer"]) <= FINE


def test_private_repository_sounds_like_one_that_does_not_exist(world: World, callers: dict[str, str | None]) -> None:
    for route, data in ALL.items():
        for muse in (True, False):
            there, away = (
                ask(world, f"/alice/{slug}", route, data, callers["stranger"], muse=muse)
                for slug in ("secret", "absent")
            )
            assert there.data.replace(b"secret", b"absent") == away.data
            assert dict(there.headers).keys() == dict(away.headers).keys()


def test_public_repository_may_be_read_by_all_and_written_by_few(world: World, callers: dict[str, str | None]) -> None:
    with Unchanged(world):
        assert statuses(world, "/alice/data", WRITES | ADMINS, callers["nobody"]) == {401}
        assert statuses(world, "/alice/data", WRITES | ADMINS, callers["stranger"]) == {403}
        assert statuses(world, "/alice/data", WRITES | ADMINS, callers["reader"]) == {403}
        for name in ("nobody", "stranger", "reader"):
            assert statuses(world, "/alice/data", READS, callers[name]) <= FINE


@pytest.mark.parametrize("base", ["/alice/data", "/alice/secret"])
@pytest.mark.parametrize("name", ["writer", "steward", "owner", "root"])
def test_those_with_the_right_may_write(world: World, callers: dict[str, str | None], base: str, name: str) -> None:
    assert statuses(world, base, READS | WRITES, callers[name]) <= FINE


@pytest.mark.parametrize("base", ["/alice/data", "/alice/secret"])
@pytest.mark.parametrize("name", ["steward", "owner", "root", "writer"])
def test_those_with_the_right_may_administer(
    world: World, callers: dict[str, str | None], base: str, name: str
) -> None:
    calls = {route: data for route, data in ADMINS.items() if not route.startswith("DELETE /api/repositories{}")}
    assert statuses(world, base, calls, callers[name]) <= (FINE if name != "writer" else {403})
    deleted = {route: data for route, data in ADMINS.items() if route == "DELETE /api/repositories{}"}
    # The second of the two calls finds it gone.
    assert statuses(world, base, deleted, callers[name]) == ({200, 404} if name != "writer" else {403})


def test_reader_of_a_private_repository_may_not_write(world: World, callers: dict[str, str | None]) -> None:
    with Unchanged(world):
        assert statuses(world, "/alice/secret", READS, callers["reader"]) <= FINE
        assert statuses(world, "/alice/secret", WRITES | ADMINS, callers["reader"]) == {403}


def test_role_in_one_repository_is_none_in_another(world: World, callers: dict[str, str | None]) -> None:
    world.repository("root/other", private=True)
    for name in ("writer", "steward", "owner"):
        assert statuses(world, "/root/other", ALL, callers[name]) == {404}


@pytest.mark.usefixtures("callers")
class TestScope:
    """A token gives no more than its scope, whatever its user may do, and that in its own repository only."""

    @pytest.fixture
    def token(self, world: World) -> Callable[..., str]:
        def make(name: str, **options: Any) -> str:
            with world.hub.services.sessions.begin() as session:
                return create_token(session, name, **options)[1]

        return make

    @pytest.mark.parametrize("name", ["alice", "root"])
    @pytest.mark.parametrize("base", ["/alice/data", "/alice/secret"])
    def test_scope_is_the_most_that_a_token_may(
        self, world: World, token: Callable[..., str], name: str, base: str
    ) -> None:
        reading = token(name, scope=Right.READ)
        with Unchanged(world):
            assert statuses(world, base, READS, reading) <= FINE
            assert statuses(world, base, WRITES | ADMINS, reading) == {403}
        writing = token(name, scope=Right.WRITE)
        assert statuses(world, base, READS | WRITES, writing) <= FINE
        assert statuses(world, base, ADMINS, writing) == {403}

    def test_scope_gives_no_right_that_the_user_has_not(self, world: World, token: Callable[..., str]) -> None:
        assert statuses(world, "/alice/secret", ALL, token("stranger", scope=Right.ADMIN)) == {404}
        assert statuses(world, "/alice/secret", WRITES | ADMINS, token("reader", scope=Right.ADMIN)) == {403}

    def test_token_of_one_repository_is_none_in_another(self, world: World, token: Callable[..., str]) -> None:
        only = token("alice", repository_id=world.repository_id)
        assert statuses(world, "/alice/data", READS | WRITES, only) <= FINE
        with Unchanged(world):
            assert statuses(world, "/alice/secret", ALL, only) == {404}
        world.repository("root/open")
        assert statuses(world, "/root/open", READS, only) <= FINE
        assert statuses(world, "/root/open", WRITES | ADMINS, only) == {403}


PARTS = re.compile(r"/-/(parts|page/<int\(min=1\):page>)")
"""The Muse client's routes once more, below other remote URLs."""


def shape(route: str) -> str:
    """The route without the id of a push, the tag of a release and the like."""
    route = PARTS.sub("", route)
    return re.sub(r"/(pushes|releases|collaborators|archive)/.*", r"/\1/…", route)


def test_every_route_of_a_repository_is_covered(world: World) -> None:
    """A route that is added must be added above."""
    known = {shape(item) for item in ALL}
    rules = {
        shape(f"{method} {rule.rule.replace('/<owner>/<slug>', '{}')}")
        for rule in world.app.url_map.iter_rules()
        if "<owner>" in rule.rule
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    assert rules == known


@pytest.mark.parametrize("header", ["Basic YWxpY2U6eA==", "Bearer", "Bearer ", "ph_token", "", "Bearer a\xe9b"])
def test_header_that_is_no_bearer_token_is_refused(world: World, header: str) -> None:
    answer = world.client.get("/alice/data/refs", headers={"Authorization": header})
    refused(answer, 401)
    assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_refusal_does_not_repeat_the_token(world: World) -> None:
    for base in ("/alice/data", "/alice/none"):
        answer = world.client.get(f"{base}/refs", headers={"Authorization": "Bearer ph_verysecret"})
        assert b"verysecret" not in answer.data


def test_token_works_until_it_expires(new_world: Callable[..., World]) -> None:
    world = new_world()
    with world.hub.services.sessions.begin() as session:
        _, token = create_token(session, "alice", expires_at=datetime.now(UTC) + timedelta(hours=1))
    assert world.post("/filter-objects", {"object_ids": []}, token=token).status_code == 200
    with world.hub.services.sessions.begin() as session:
        session.execute(text("UPDATE hub.token SET expires_at = now() WHERE expires_at IS NOT NULL"))
    refused(world.post("/filter-objects", {"object_ids": []}, token=token), 401)


def test_only_the_hash_of_a_token_is_stored(world: World) -> None:
    with world.hub.services.sessions() as session:
        row = str(session.execute(text("SELECT token::text FROM hub.token")).all())
    assert world.token not in row
    assert world.token.encode().hex() not in row


def test_push_of_one_repository_is_not_shown_in_another(
    world: World, history: History, callers: dict[str, str | None]
) -> None:
    push_id = world.push_mpack(history, history.line(1)[0]).get_json()["push_id"]
    assert world.get(f"/pushes/{push_id}").status_code == 200
    elsewhere = world.client.get(f"/alice/secret/pushes/{push_id}", headers=world.headers())
    refused(elsewhere, 404)


@pytest.mark.parametrize(
    "path", ["/a%00b/data/refs", "/alice/d%00a/refs", "/alice/%ff%fe/refs", "/alice/" + "y" * 5000 + "/refs"]
)
def test_odd_repository_name_is_not_found(world: World, path: str) -> None:
    refused(world.client.get(path, headers={"Accept": MUSE_ACCEPT}), 404)
