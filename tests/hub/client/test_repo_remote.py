"""`packhouse repo list` and `repo collaborators` with a URL: against the real hub, and what a broken one may say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hub.cli import packhouse
from hub.client import api
from hub.client.address import parse_address
from tests.hub.client.scripted import ScriptedServer, answer
from tests.hub.client.test_push_clone import served
from tests.hub.world import World

INFO = {"repo_id": "r", "owner": "ada", "visibility": "public", "default_branch": None, "domain": "code", "url": "u"}


def run(token: str | None, home: Path, *arguments: str) -> Result:
    environ = {"HOME": str(home), "XDG_CONFIG_HOME": None, "PACKHOUSE_TOKEN": token, "DATABASE_URL": None}
    return CliRunner().invoke(packhouse, ["repo", *arguments], env=environ)


@pytest.mark.integration
def test_owner_lists_repositories_and_manages_collaborators_of_a_hub(
    new_world: Callable[..., World], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "PAGE_ITEMS", 1)  # so that there are several pages
    world = new_world()
    world.user("bob")
    world.user("carol")
    world.repository("alice/more", private=True)

    with served(world) as url:

        def told(token: str | None, *arguments: str) -> Any:
            result = run(token, tmp_path, *arguments, "--json")
            assert result.exit_code == 0, result.output
            return json.loads(result.stdout)

        root = f"http://{parse_address(url).authority}"
        listed = told(world.token, "list", root)["repositories"]
        assert [(item["owner"], item["name"]) for item in listed] == [("alice", "data"), ("alice", "more")]
        assert [item["name"] for item in told(None, "list", url)["repositories"]] == ["data"], "anybody reads those"

        assert told(world.token, "collaborators", "set", url, "carol", "read")["role"] == "read"
        told(world.token, "collaborators", "set", url, "bob", "read")
        assert (
            run(world.token, tmp_path, "collaborators", "set", url, "bob", "admin").stdout
            == f"bob may admin in {url}.\n"
        )
        roles = [{"name": "bob", "role": "admin"}, {"name": "carol", "role": "read"}]
        assert told(world.token, "collaborators", "list", url)["collaborators"] == roles
        assert told(world.token, "collaborators", "remove", url, "bob") == {"ok": True, "name": "bob", "role": None}
        assert "carol" in run(world.token, tmp_path, "collaborators", "list", url).stdout

        refused = run(world.token, tmp_path, "collaborators", "remove", url, "bob", "--json")
        assert (refused.exit_code, json.loads(refused.stdout)["error"]) == (1, "NOT_FOUND")
        assert run(None, tmp_path, "collaborators", "list", url).exit_code == 1, "not for strangers"


def test_name_with_a_slash_stays_one_part_of_the_path(server: ScriptedServer, tmp_path: Path) -> None:
    server.on("PUT", "/api/repositories/ada/notes/collaborators/b%2Fc", answer({"name": "b/c", "role": "read"}))
    assert run("t", tmp_path, "collaborators", "set", server.url, "b/c", "read").exit_code == 0
    assert server.asked[0].json == {"role": "read"}


@pytest.mark.parametrize(
    "page", [{"repositories": None}, {"repositories": ["x"]}, {"repositories": [], "next": "ada/notes"}]
)
def test_page_that_is_none_is_refused(server: ScriptedServer, tmp_path: Path, page: dict[str, Any]) -> None:
    server.on("GET", "/api/repositories", answer(page))
    result = run("t", tmp_path, "list", server.root)
    assert (result.exit_code, "not a hub's" in result.stderr) == (3, True)


def test_second_page_comes_after_the_first(server: ScriptedServer, tmp_path: Path) -> None:
    first = {"repositories": [INFO | {"name": "a"}], "next": "ada/a&b"}
    server.on("GET", "/api/repositories", answer(first), answer({"repositories": [INFO | {"name": "b"}], "next": None}))
    result = run("t", tmp_path, "list", server.root, "--json")
    assert [item["name"] for item in json.loads(result.stdout)["repositories"]] == ["a", "b"]
    assert [asked.path for asked in server.asked] == [
        "/api/repositories?limit=200",
        "/api/repositories?limit=200&after=ada%2Fa%26b",
    ]
