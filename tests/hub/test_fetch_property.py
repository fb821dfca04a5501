"""Random histories, pushed in random steps by both transports: every fetch brings exactly what the model says."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hub import records
from tests.hub.views import Contents, check, fetch_mpack, fetch_muse, model
from tests.hub.world import History, World

pytestmark = pytest.mark.integration

BRANCHES = ["main", "dev", "topic/x"]
NAMES = ["a", "b", "dir/c", "dir/d", "e"]
UNKNOWN = "ab" * 32
numbers = itertools.count()


@dataclass
class Repository:
    """What a person has in front of them: branches, and the tree of each."""

    history: History = field(default_factory=History)
    heads: dict[str, str] = field(default_factory=dict)
    pushed: set[str] = field(default_factory=set)

    def tree(self, branch: str) -> dict[str, bytes]:
        head = self.heads.get(branch)
        if head is None:
            return {}
        manifest = self.history.snapshots[self.history.commits[head]["snapshot_id"]]["manifest"]
        return {path: self.history.contents[object_id] for path, object_id in manifest.items()}

    def commit(self, branch: str, change: str, name: str, content: bytes, other: str) -> None:
        """Commit one change to the branch; a branch that is not there begins at `other`, or anew."""
        if branch not in self.heads and other in self.heads:
            self.heads[branch] = self.heads[other]
        tree = self.tree(branch)
        parents = [self.heads[branch]] if branch in self.heads else []
        if change == "write":
            tree[name] = content
        elif change == "rename" and tree:
            tree = {f"moved-{path.replace('/', '-')[:20]}": held for path, held in tree.items()}
        elif change == "copy" and tree:
            tree[name] = next(iter(tree.values()))
        elif change == "clear":
            tree = {}
        elif change == "back" and parents:
            root = self.history.ancestors(parents[0])[-1]
            manifest = self.history.snapshots[self.history.commits[root]["snapshot_id"]]["manifest"]
            tree = {path: self.history.contents[object_id] for path, object_id in manifest.items()}
        elif change == "merge" and other in self.heads and self.heads[other] not in parents:
            parents.append(self.heads[other])
            tree = self.tree(other) | tree
        self.heads[branch] = self.history.commit(tree, *parents)

    def push(self, world: World, branch: str, transport: str) -> None:
        if branch in self.heads:
            send = world.push_mpack if transport == "mpack" else world.push_muse
            answer = send(self.history, self.heads[branch], branch)
            assert answer.status_code == 200, answer.data
            self.pushed |= set(self.history.ancestors(self.heads[branch]))


CHANGES = st.sampled_from(["write", "write", "rename", "copy", "clear", "back", "merge", "keep"])
COMMIT = st.tuples(
    st.just("commit"), st.sampled_from(BRANCHES), CHANGES, st.sampled_from(NAMES),
    st.sampled_from([b"", b"same", b"other", b"x" * 3000]), st.sampled_from(BRANCHES),
)  # fmt: skip
PUSH = st.tuples(st.just("push"), st.sampled_from(BRANCHES), st.sampled_from(["mpack", "muse"]))
STEPS = st.lists(COMMIT | COMMIT | PUSH | st.just(("drain",)), min_size=3, max_size=16)
PICKS = st.lists(st.tuples(st.integers(0, 99), st.lists(st.integers(0, 99), max_size=3)), min_size=1, max_size=4)


def check_fetch(world: World, repository: Repository, want: list[str], have: list[str]) -> None:
    history = repository.history
    known = [item for item in have if item in repository.pushed]
    expected = model(history, want, known)
    for found in (fetch_muse(world, want, have), fetch_mpack(world, want, have)):
        # Without a `have` that the hub knows, the whole prebuilt pack may come: it has all branches.
        whole = model(history, world.heads().values())
        assert found == expected or (not known and found == whole)
        check_whole(history, found, have)


def check_whole(history: History, found: Contents, have: list[str]) -> None:
    """A receiver that has `have` with all behind it can check out every commit that came."""
    held = {item for commit_id in have if commit_id in history.commits for item in history.ancestors(commit_id)}
    snapshots = found.snapshots | {history.commits[item]["snapshot_id"] for item in held}
    objects = found.objects | set(history.objects_of(sorted(held))) | {records.EMPTY_OBJECT_ID}
    seen = set(held)
    for commit_id in found.order:
        commit = history.commits[commit_id]
        assert {commit["parent_commit_id"], commit["parent2_commit_id"]} - {None} <= seen
        assert commit["snapshot_id"] in snapshots
        assert set(history.snapshots[commit["snapshot_id"]]["manifest"].values()) <= objects
        seen.add(commit_id)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@example(
    steps=[
        ("commit", "main", "write", "a", b"same", "main"), ("push", "main", "mpack"),
        ("commit", "dev", "write", "b", b"other", "main"), ("push", "dev", "muse"), ("drain",),
        ("commit", "main", "clear", "a", b"", "main"), ("commit", "main", "merge", "a", b"", "dev"),
        ("push", "main", "muse"), ("commit", "main", "back", "a", b"", "main"), ("push", "main", "mpack"),
    ],
    picks=[(0, [1]), (1, [0, 2]), (2, [])],
)  # fmt: skip
@example(
    steps=[
        ("commit", "main", "write", "a", b"", "main"), ("push", "main", "mpack"),
        ("commit", "main", "write", "b", b"", "main"), ("commit", "topic/x", "write", "a", b"", "topic/x"),
        ("push", "topic/x", "mpack"),
    ],
    picks=[(0, [0]), (1, [1]), (0, [2]), (1, [0, 1])],
)  # fmt: skip
@given(steps=STEPS, picks=PICKS)
def test_every_fetch_brings_exactly_what_is_missing(
    world: World, steps: list[tuple[object, ...]], picks: list[tuple[int, list[int]]]
) -> None:
    slug = f"alice/random{next(numbers)}"
    world.repository_id, world.base = world.repository(slug), f"/{slug}"
    repository = Repository()
    for kind, *what in steps:
        if kind == "commit":
            repository.commit(*what)  # type: ignore[arg-type]
        elif kind == "push":
            repository.push(world, *what)  # type: ignore[arg-type]
        else:
            world.drain()
    world.drain()
    history = repository.history
    pushed = sorted(repository.pushed)
    heads = sorted(set(world.heads().values()))
    assert fetch_mpack(world) == fetch_muse(world, heads) == model(history, heads)
    everything = [*sorted(history.commits), UNKNOWN]
    for place, places in picks if pushed else []:
        want, have = pushed[place % len(pushed)], [everything[item % len(everything)] for item in places]
        check_fetch(world, repository, [want], have)
        check_fetch(world, repository, heads, have)
    check(world)
