"""A repository that is too large for one answer, fetched in parts by the Muse client's requests."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from hub import records
from hub.wire import pull
from tests.hub.offers import refused
from tests.hub.racing import pushed
from tests.hub.views import Contents, fetch_muse, model
from tests.hub.world import History, World

pytestmark = pytest.mark.integration

LIMIT = 60_000


@pytest.fixture(autouse=True)
def small_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull, "ANSWER_BYTES", LIMIT)


class Receiver:
    """What a client has got; it fetches as `muse pull --no-merge` does, with all its commits as `have`."""

    def __init__(self, world: World, history: History, tip: str) -> None:
        self.world, self.history, self.tip = world, history, tip
        self.commits: list[str] = []
        self.snapshots: set[str] = set()
        self.objects: set[str] = {records.EMPTY_OBJECT_ID}

    def pull(self, remote: str) -> Contents:
        self.world.base = f"/alice/data{remote}"
        if self.commits:
            said = self.ask("/negotiate", have=self.commits[:64])
            assert said["ready"] is (self.tip in self.commits[:64])
        found = fetch_muse(self.world, [self.tip], sorted(self.commits))
        for commit_id in found.order:
            assert set(self.history.ancestors(commit_id)) - {commit_id} <= set(self.commits), "a parent is not here"
            self.commits.append(commit_id)
        self.snapshots |= found.snapshots
        self.objects |= found.objects
        for commit_id in found.commits:
            snapshot_id = self.history.commits[commit_id]["snapshot_id"]
            assert snapshot_id in self.snapshots
            assert set(self.history.snapshots[snapshot_id]["manifest"].values()) <= self.objects
        return found

    def ask(self, path: str, **data: Any) -> dict[str, Any]:
        answer = self.world.post(path, {"want": [self.tip], **data}, muse=True)
        assert answer.status_code == 200, answer.data
        return dict(msgpack.unpackb(answer.data))


def noise(length: int, seed: int) -> bytes:
    return bytes((seed * 31 + number * (seed + 7)) % 251 for number in range(length))


@pytest.fixture
def tip(world: World, history: History) -> str:
    """Eleven commits with merges, of 20,000 new bytes each."""
    left = history.commit({"a": noise(20_000, 1)})
    tree = {"a": noise(20_000, 1)}
    for number in range(2, 6):
        tree = tree | {f"dir/{number}": noise(20_000, number)}
        left = history.commit(tree, left)
    right = left
    for number in range(6, 10):
        right = history.commit(tree | {f"r{number}": noise(20_000, number)}, right)
    left = history.commit(tree | {"empty": b""}, left)
    merge = history.commit(tree | {"r9": noise(20_000, 9)}, left, right)
    pushed(world.push_muse(history, merge))
    world.drain()
    return merge


def test_plain_url_refuses_and_names_the_commands(world: World, tip: str) -> None:
    answer = world.post("/fetch", {"want": [tip], "have": []}, muse=True)
    refused(answer, 413, "packhouse clone", "http://localhost/alice/data/-/parts", "muse pull --no-merge origin main")


def test_parts_bring_all_oldest_first_until_nothing_is_left(world: World, history: History, tip: str) -> None:
    receiver = Receiver(world, history, tip)
    rounds = 0
    while receiver.pull("/-/parts").commits:
        rounds += 1
    whole = model(history, [tip])
    assert rounds == 5
    assert set(receiver.commits) == whole.commits
    assert receiver.snapshots == whole.snapshots
    assert receiver.objects - {records.EMPTY_OBJECT_ID} == whole.objects


def test_each_part_fits_and_is_as_large_as_can_be(world: World, tip: str) -> None:
    world.base = "/alice/data/-/parts"
    answer = world.post("/fetch", {"want": [tip], "have": []}, muse=True)
    assert LIMIT - 25_000 < len(answer.data) <= LIMIT


def test_the_other_requests_are_the_same_below_it(world: World, history: History, tip: str) -> None:
    plain = world.get("/refs", muse=True).data
    for part in ("/-/parts", "/-/page/3"):
        world.base = f"/alice/data{part}"
        assert world.get("/refs", muse=True).data == plain
        child = history.commit({"new": part.encode()}, next(iter(world.heads().values())))
        pushed(world.push_muse(history, child))
        world.base = "/alice/data"
        assert world.heads() == {"main": child}
        plain = world.get("/refs", muse=True).data


class TestPages:
    @pytest.fixture
    def large(self, world: World, history: History, tip: str) -> str:
        """A commit with 130,000 new bytes upon the others."""
        files = {f"large/{number}": noise(13_000, number + 20) for number in range(10)}
        commit = history.commit(files, tip)
        pushed(world.push_muse(history, commit))
        world.drain()
        return commit

    def test_commit_that_does_not_fit_is_refused_with_its_pages(
        self, world: World, history: History, tip: str, large: str
    ) -> None:
        world.base = "/alice/data/-/parts"
        have = history.ancestors(tip)
        answer = world.post("/fetch", {"want": [large], "have": have}, muse=True)
        refused(answer, 413, "3 pages", "/-/page/N", "muse pull --no-merge origin main")

    def test_pages_bring_its_objects_and_the_last_one_the_commit(
        self, world: World, history: History, tip: str, large: str
    ) -> None:
        receiver = Receiver(world, history, large)
        while not receiver.commits or tip not in receiver.commits:
            receiver.pull("/-/parts")
        pages = [receiver.pull(f"/-/page/{number}") for number in (1, 2, 3)]
        assert [(len(page.commits), len(page.snapshots)) for page in pages] == [(0, 0), (0, 0), (1, 1)]
        assert sum(len(page.objects) for page in pages) == 10
        assert set(receiver.commits) == model(history, [large]).commits
        assert not receiver.pull("/-/parts").commits
        assert not receiver.pull("/-/page/1").objects

    def test_page_beyond_the_last_is_not_found(self, world: World, history: History, tip: str, large: str) -> None:
        world.base = "/alice/data/-/page/4"
        answer = world.post("/fetch", {"want": [large], "have": history.ancestors(tip)}, muse=True)
        refused(answer, 404, "3 pages")

    @pytest.mark.parametrize("page", ["0", "-1", "x", "1/2", ""])
    def test_page_that_is_no_number_is_not_there(self, world: World, page: str) -> None:
        world.base = f"/alice/data/-/page/{page}"
        refused(world.get("/refs", muse=True), 404)

    def test_file_that_no_page_can_hold_is_said(self, world: World, history: History) -> None:
        commit = history.commit({"huge": noise(70_000, 3)})
        pushed(world.push_muse(history, commit, "huge"))
        world.drain()
        for part in ("/-/parts", "/-/page/1"):
            world.base = f"/alice/data{part}"
            refused(world.post("/fetch", {"want": [commit], "have": []}, muse=True), 413, "packhouse clone")
