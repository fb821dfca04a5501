"""The last commit of each path, and the languages: right by a plain model, kept up from push to push, and shown."""

from __future__ import annotations

import random
from typing import Any

import pytest

from hub.chores import INTEL, LAST_COMMITS
from hub.code_intel import language_of
from hub.last_commits import decode, encode, file_last_commits, read_last_commits
from hub.prebuild import live_tips
from tests.hub.racing import pushed
from tests.hub.views import jobs, rows
from tests.hub.world import History, World

pytestmark = pytest.mark.integration


def expected(history: History, tip: str) -> dict[str, str]:
    """Path → the newest commit on the line of first parents that changed it."""
    tree = dict(history.snapshots[history.commits[tip]["snapshot_id"]]["manifest"])
    found: dict[str, str] = {}
    commit_id: str | None = tip
    while commit_id is not None:
        parent = history.commits[commit_id]["parent_commit_id"]
        before = history.snapshots[history.commits[parent]["snapshot_id"]]["manifest"] if parent else {}
        for path, object_id in history.snapshots[history.commits[commit_id]["snapshot_id"]]["manifest"].items():
            if before.get(path) != object_id and path in tree:
                found.setdefault(path, commit_id)
        commit_id = parent
    return found


def known(world: World, tip: str) -> dict[str, str] | None:
    with world.hub.services.sessions() as session:
        return read_last_commits(session, world.repository_id, tip)


def test_the_last_commit_of_each_path_by_first_parents(world: World, history: History) -> None:
    root = history.commit({"a": b"1", "b": b"1", "gone": b"x"})
    side = history.commit({"a": b"1", "b": b"2", "side": b"s", "gone": b"x"}, root)
    main = history.commit({"a": b"2", "b": b"1"}, root)
    merge = history.commit({"a": b"2", "b": b"2", "side": b"s"}, main, side)
    back = history.commit({"a": b"1", "b": b"2", "side": b"s"}, merge)
    pushed(world.push_mpack(history, back))
    world.drain()
    assert known(world, back) == {"a": back, "b": merge, "side": merge}


@pytest.mark.parametrize("seed", range(3))
def test_from_push_to_push_it_is_the_same_as_from_the_beginning(world: World, history: History, seed: int) -> None:
    chance = random.Random(seed)
    tips: dict[str, str] = {}
    for _ in range(10):
        branch = chance.choice(["main", "dev"])
        parents = [tips[branch]] if branch in tips else []
        for _ in range(chance.randrange(1, 4)):
            others = [tip for tip in tips.values() if tip not in parents]
            if others and parents and chance.random() < 0.3:
                parents = [*parents[:1], chance.choice(others)]
            files = {f"f{number}": b"%d" % chance.randrange(3) for number in range(6) if chance.random() < 0.8}
            parents = [history.commit(files, *parents)]
        tips[branch] = parents[0]
        pushed(world.push_mpack(history, tips[branch], branch))
        world.drain()
    for tip in set(tips.values()):
        assert known(world, tip) == expected(history, tip)
    assert rows(world, "SELECT count(*) FROM hub.last_commits")[0][0] == len(set(tips.values()))
    assert rows(world, "SELECT count(*) FROM hub.code_intel")[0][0] == len(set(tips.values()))


def test_a_further_push_looks_at_its_own_commits_only(world: World, history: History) -> None:
    tips = history.line(30)
    pushed(world.push_mpack(history, tips[0]))
    world.drain()
    pushed(world.push_mpack(history, tips[-2]))
    world.drain()
    pushed(world.push_mpack(history, tips[-1]))
    with world.hub.services.sessions.begin() as session:
        found = file_last_commits(session, world.repository_id, live_tips(session, world.repository_id))
    assert found["commits"] <= 3
    assert known(world, tips[-1]) == expected(history, tips[-1])


def test_the_compact_form_comes_back(history: History) -> None:
    manifest = {f"dir/{number}": "a" * 64 for number in range(1000)}
    found = {path: f"{number % 7:064x}" for number, path in enumerate(manifest)}
    encoded = encode(manifest, found)
    assert decode(manifest, encoded) == found
    assert len(encoded) < 2500
    assert decode({}, encode({}, {})) == {}


@pytest.mark.parametrize(
    ("path", "language"),
    [
        ("a/b.py", "Python"), ("Makefile", "Makefile"), ("README.md", "Markdown"), ("x.unknown", "Other"),
        ("none", "Other"), (".gitignore", "Other"), ("a.tar.gz", "Other"), ("Dockerfile", "Docker"),
        ("[x].py", "Python"),
    ],
)  # fmt: skip
def test_a_language_is_told_by_the_name(path: str, language: str) -> None:
    assert language_of(path) == language


def test_languages_of_a_head(world: World, history: History) -> None:
    tip = history.commit({"a.py": b"x" * 70, "b.py": b"y" * 5, "same.py": b"y" * 5, "c.md": b"z" * 20, "empty.rs": b""})
    pushed(world.push_mpack(history, tip))
    answer = world.client.get("/api/repositories/alice/data/languages")
    assert (answer.status_code, "Retry-After" in answer.headers) == (503, True)
    world.drain()
    assert world.client.get("/api/repositories/alice/data/languages").get_json() == {
        "commit_id": tip,
        "files": 5,
        "bytes": 100,
        "languages": [
            {"name": "Python", "files": 3, "bytes": 80},
            {"name": "Markdown", "files": 1, "bytes": 20},
            {"name": "Rust", "files": 1, "bytes": 0},
        ],
        "largest": [
            {"path": "a.py", "bytes": 70},
            {"path": "c.md", "bytes": 20},
            {"path": "b.py", "bytes": 5},
            {"path": "same.py", "bytes": 5},
            {"path": "empty.rs", "bytes": 0},
        ],
    }


def test_files_come_by_path_in_pages_with_their_last_commits(world: World, history: History) -> None:
    first = history.commit({"a": b"1", "dir/b": b"22", "dir/c": b"", "dirt": b"4"})
    tip = history.commit({"a": b"1", "dir/b": b"333", "dir/c": b"", "dirt": b"4"}, first)
    pushed(world.push_mpack(history, tip))
    world.drain()

    def page(query: str) -> dict[str, Any]:
        answer = world.client.get(f"/api/repositories/alice/data/files?{query}")
        assert answer.status_code == 200, answer.data
        return dict(answer.get_json())

    whole = page("")["files"]
    assert [(item["path"], item["size"], item["last_commit"]) for item in whole] == [
        ("a", 1, first), ("dir/b", 3, tip), ("dir/c", 0, first), ("dirt", 1, first)
    ]  # fmt: skip
    assert [item["path"] for item in page("under=dir")["files"]] == ["dir/b", "dir/c"]
    assert page("limit=3")["next"] == "dir/c"
    assert [item["path"] for item in page("limit=3&after=dir/c")["files"]] == ["dirt"]
    assert {item["last_commit"] for item in page(f"ref={first}")["files"]} == {None}
    assert world.client.get(f"/api/repositories/alice/data/languages?ref={first}").status_code == 404
    assert world.client.get("/api/repositories/alice/data/files?ref=none").status_code == 404


def test_many_pushes_queue_one_of_each_and_both_wait_for_nobody(world: World, history: History) -> None:
    for tip in history.line(3):
        pushed(world.push_mpack(history, tip))
    for task in (LAST_COMMITS, INTEL):
        (job,) = jobs(world, task)
        assert job.coalesced == 2
        assert set(job.payload["kwargs"]) == {"head", "branch"}
    world.drain()
    assert {job.status for task in (LAST_COMMITS, INTEL) for job in jobs(world, task)} == {"succeeded"}


def test_the_page_shows_files_languages_and_downloads(world: World, history: History) -> None:
    pushed(world.push_mpack(history, history.commit({"<b>.py": b"x"}, message="What & why\nmore")))
    before = world.client.get("/alice/data").get_data(as_text=True)
    assert "&lt;b&gt;.py" in before
    world.drain()
    page = world.client.get("/alice/data").get_data(as_text=True)
    assert "What &amp; why" in page
    assert 'Python <span class="quiet">100.0 %</span>' in page
    assert "/alice/data/archive/main.zip" in page
