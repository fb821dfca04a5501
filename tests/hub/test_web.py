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


BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


@pytest.mark.parametrize("path", ["/alice/nothing", "/nowhere", "/alice/data/archive/main.zip", "/alice/data/push"])
def test_a_browser_reads_an_error_as_a_page(world: World, path: str) -> None:
    answer = world.client.get(path, headers=BROWSER)
    assert answer.status_code in (404, 405)
    assert answer.mimetype == "text/html"
    assert f"<h1>{answer.status_code}</h1>" in answer.text
    assert world.client.get(path).mimetype == "application/json"


def test_the_api_answers_json_to_a_browser_too(world: World) -> None:
    assert world.client.get("/api/repositories/alice/nothing", headers=BROWSER).mimetype == "application/json"


def test_nothing_that_was_pushed_runs_on_a_page(world: World, history: History) -> None:
    tip = history.commit({"<script>alert(1)<": b"x"}, message="<b onclick=alert(1)>")
    assert world.push_mpack(history, tip, "a'\"><script>x").status_code == 200
    assert world.push_mpack(history, tip, "main").status_code == 200
    world.drain()
    for path in ("/alice/data", "/<script>"):
        answer = world.client.get(path, headers=BROWSER)
        assert "<script" not in answer.text
        assert "<b onclick" not in answer.text
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_the_archive_of_a_branch_with_an_odd_name_can_be_had_from_its_page(world: World, history: History) -> None:
    tip = history.commit({"a": b"1"})
    assert world.push_mpack(history, tip, "50% #1?").status_code == 200
    world.drain()
    page = world.client.get("/alice/data").text
    link = page.partition('.zip">')[0].rpartition('href="http://localhost')[2] + ".zip"
    assert world.client.get(link, headers=BROWSER).mimetype == "application/zip"
