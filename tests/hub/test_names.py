"""Names of branches, tags and channels that are refused, one by one, wherever such a name comes in."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from tests.hub.offers import Offer, Unchanged, commit, push, refused, snapshot
from tests.hub.world import MUSE_ACCEPT, History, World

pytestmark = pytest.mark.integration

ID = "ab" * 32
TREE = snapshot({})
CONTROLS = [chr(number) for number in (*range(0x20), *range(0x7F, 0xA0))]
BAD_BRANCHES = [
    "", " " * 256, "x" * 256,
    "\\", "a\\b", "\\a", "a\\", ".", "..", "...", ".a", "a.", "..a", "a..", "a..b", "../a",
    "a/..", "a/../b", "../../x", "../../x\n", "/", "//", "/a", "a/", "a//b", "//a", "a//", "a/./b", "a/././b",
    "a/.", "./a",
    *(f"a{control}b" for control in CONTROLS), *(f"{control}a" for control in "\0\n\r\t"),
    *(f"a{control}" for control in "\0\n\r\t"),
]  # fmt: skip
NO_NAMES: list[Any] = [None, 7, True, 1.5]
NESTED: list[Any] = [["main"], {"main": 1}]
"""A Muse client's `push` is read without decoding what nests, and refuses these as a body of the wrong form."""
GOOD_BRANCHES = [
    " ", "a b", "~", "-x", "@", "HEAD", "x.lock", "a.b", "a/.b", "a/b.c/d", "ünï", "u\u0308", "名前", "\U0001f600",
    "x" * 255, "é" * 255, "'\"><script>", "%2e%2e", "?", "#", "*", ":", "a\u200bb",
]  # fmt: skip
BAD_TAGS = [
    "", "v", "1", "1.2", "v1.2", "1.2.3.4", "01.2.3", "1.02.3", "1.2.03", "-1.2.3",
    "1.2.3-", "1.2.3+", "1.2.3-a_b",
    "1.2.3+a b", "V1.2.3", "vv1.2.3", " 1.2.3", "1.2.3 ", "1.2.3\n", "1.2.3\0", "1.2.3-é", "1.2.3-\U0001f600",
    "\u0661.\u0662.\u0663", "main", "../1.2.3", "1.2.3/x", "1.2.3-" + "x" * 512,
]  # fmt: skip


@pytest.mark.parametrize("transport", ["muse", "mpack"])
def test_bad_branch_name_is_refused(world: World, transport: str) -> None:
    offer = Offer([commit(TREE)], [TREE])
    with Unchanged(world):
        for branch in [*BAD_BRANCHES, *NO_NAMES, *NESTED]:
            offer.branch = branch
            refused(
                push(world, transport, offer), 422, "body" if branch in NESTED and transport == "muse" else "branch"
            )


def test_bad_branch_name_is_refused_before_a_byte_of_a_pack_moves(world: World) -> None:
    with Unchanged(world):
        for branch in [*BAD_BRANCHES, *NO_NAMES, *NESTED]:
            data: dict[str, Any] = {"mpack_id": ID, "size": 1, "branch": branch, "head": ID}
            refused(world.post("/push/mpack/presign", data), 422, "branch")


def test_bad_branch_name_is_no_default_branch(world: World) -> None:
    with Unchanged(world):
        for branch in [*BAD_BRANCHES[1:], *NO_NAMES[1:], *NESTED, "feature/x"]:
            for path, more in (("/alice/data", {}), ("", {"name": "other", "visibility": "public"})):
                ask = world.client.patch if path else world.client.post
                data = {"default_branch": branch, **more}
                refused(ask(f"/api/repositories{path}", json=data, headers=world.headers()), 422, "default_branch")


@pytest.mark.parametrize("transport", ["muse", "mpack"])
def test_odd_branch_name_is_taken_and_told_as_it_is(world: World, history: History, transport: str) -> None:
    tip = history.commit({})
    for branch in GOOD_BRANCHES:
        send = world.push_mpack if transport == "mpack" else world.push_muse
        assert send(history, tip, branch).status_code == 200, branch
    assert world.heads() == dict.fromkeys(GOOD_BRANCHES, tip)


def test_every_odd_branch_name_is_an_archives_name(world: World, history: History) -> None:
    tip = history.commit({"a": b"1"})
    for branch in GOOD_BRANCHES:
        assert world.push_mpack(history, tip, branch).status_code == 200
    world.drain()
    for branch in GOOD_BRANCHES:
        answer = world.client.get(f"{world.base}/archive/{quote(branch, safe='/')}.tar.gz")
        assert answer.status_code == 200, branch
        assert answer.headers["Content-Disposition"].isascii()


def test_name_that_no_branch_has_is_no_archives_name(world: World, history: History) -> None:
    assert world.push_mpack(history, history.commit({}), "main").status_code == 200
    world.drain()
    for name in BAD_BRANCHES:
        answer = world.client.get(f"{world.base}/archive/{quote(name, safe='')}.zip", headers={"Accept": MUSE_ACCEPT})
        refused(answer, 404)


def test_bad_tag_is_no_release(world: World, history: History) -> None:
    tip = history.commit({})
    assert world.push_muse(history, tip).status_code == 200
    with Unchanged(world):
        for tag in [*BAD_TAGS, *NO_NAMES, *NESTED]:
            refused(world.post("/releases", {"release_id": "r", "tag": tag, "commit_id": tip}), 422, "tag")
            shown = quote(str(tag), safe="") or "%20"
            refused(world.client.delete(f"{world.base}/releases/{shown}", headers=world.headers()), 404)


def test_bad_channel_is_refused(world: World) -> None:
    for channel in ("", "Stable", "stable\0", "stable ", "../beta", "é"):
        refused(world.get(f"/releases?channel={quote(channel)}"), 422, "channel")
