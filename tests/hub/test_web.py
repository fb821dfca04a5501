"""Pages for people."""

from __future__ import annotations

import pytest

from tests.hub.world import History, World

pytestmark = pytest.mark.integration


def test_the_index_shows_public_repositories_and_no_private_one(world: World) -> None:
    world.repository("alice/secret", private=True)
    page = world.client.get("/").text
    assert 'href="/alice/data"' in page
    assert "secret" not in page


def test_an_empty_repository_says_how_to_push(world: World) -> None:
    assert "packhouse push DIRECTORY http://localhost/alice/data" in world.client.get("/alice/data").text


def test_a_repository_shows_its_branches_and_whether_a_clone_is_ready(world: World, history: History) -> None:
    tip = history.line(2)[-1]
    assert world.push_mpack(history, tip).status_code == 200
    page = world.client.get("/alice/data").text
    assert tip in page
    assert "still being prepared" in page
    world.drain()
    assert "A clone is one download of" in world.client.get("/alice/data").text


def test_a_private_repository_has_no_page_for_strangers(world: World) -> None:
    world.repository("alice/secret", private=True)
    assert world.client.get("/alice/secret").status_code == 404
