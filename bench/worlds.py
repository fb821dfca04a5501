"""The repositories that are pushed and cloned. Seeded: the same bytes in every run."""

from __future__ import annotations

import functools
import random
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import IO, Any

from hub import records
from hub.pack.format import PackSummary
from hub.pack.writer import PackWriter

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
WORDS = ("pack", "clone", "branch", "commit", "lease", "token", "queue", "worker", "index", "block", "range", "digest")


@dataclass
class Commit:
    """One commit: its record and its snapshot's, the whole tree, and the files that it has changed."""

    record: dict[str, Any]
    snapshot: dict[str, Any]
    tree: dict[str, bytes]
    changed: dict[str, bytes]

    @property
    def commit_id(self) -> str:
        """The id of the record."""
        return str(self.record["commit_id"])


@dataclass
class Packed:
    """Some commits of a world as one pack."""

    file: IO[bytes]
    summary: PackSummary
    head: str


@dataclass
class World:
    """A repository, and how its commits are spread over pushes."""

    name: str
    commits: list[Commit]
    pushes: int

    @property
    def tree(self) -> dict[str, bytes]:
        """What a clone must hold."""
        return self.commits[-1].tree

    @functools.cached_property
    def objects(self) -> dict[str, bytes]:
        """Every object of the history, by id."""
        return {records.object_id(data): data for commit in self.commits for data in commit.changed.values()}

    def steps(self) -> list[list[Commit]]:
        """The commits of each push."""
        size = len(self.commits) // self.pushes
        return [self.commits[start : start + size] for start in range(0, len(self.commits), size)]


def w1() -> World:
    """1,000 text files of 1 to 8 KB and 50 commits of 20 edits each."""
    return _build("W1", files=1_000, commits=50, edits=20, size=(1_000, 8_000), text=True)


def w2() -> World:
    """40 files of 5 MB of random bytes and 5 commits of 4 rewrites each."""
    return _build("W2", files=40, commits=5, edits=4, size=(5_000_000, 5_000_000), text=False)


def w3() -> World:
    """10,000 text files of 0.5 to 2 KB and 10 commits of 10 edits each."""
    return _build("W3", files=10_000, commits=10, edits=10, size=(500, 2_000), text=True)


def w4() -> World:
    """W1, pushed in ten steps of five commits, back to back."""
    return _build("W4", files=1_000, commits=50, edits=20, size=(1_000, 8_000), text=True, pushes=10)


def pack(commits: list[Commit]) -> Packed:
    """The pack of these commits: the objects that they have changed, by path and then by history."""
    file = tempfile.TemporaryFile()  # noqa: SIM115  # it lives as long as what is packed
    writer = PackWriter(file)
    versions: dict[str, list[bytes]] = {}
    for commit in commits:
        for path, data in commit.changed.items():
            versions.setdefault(path, []).append(data)
    for path in sorted(versions):
        for data in versions[path]:
            writer.add_object(records.object_id(data), data)
    for commit in commits:
        writer.add_snapshot(records.parse_snapshot(commit.snapshot))
    for commit in commits:
        writer.add_commit(records.parse_commit(commit.record))
    return Packed(file, writer.finish(), commits[-1].commit_id)


def _build(
    name: str, *, files: int, commits: int, edits: int, size: tuple[int, int], text: bool, pushes: int = 1
) -> World:
    chance = random.Random(name)
    content = _text if text else _noise
    tree = {f"dir{n % 50:02}/file{n:05}.txt": content(chance, chance.randint(*size)) for n in range(files)}
    made: list[Commit] = []
    for number in range(commits):
        changed = dict(tree)
        if number:
            chosen = chance.sample(sorted(tree), edits)
            changed = {path: _edit(chance, tree[path]) if text else content(chance, len(tree[path])) for path in chosen}
            tree = tree | changed
        at = (BEGIN + timedelta(minutes=number)).isoformat()
        snapshot = records.snapshot_record({path: records.object_id(data) for path, data in tree.items()}, at)
        record = records.commit_record(
            snapshot_id=snapshot["snapshot_id"],
            message=f"Commit {number}",
            committed_at=at,
            parents=[made[-1].commit_id] if made else [],
        )
        made.append(Commit(record, snapshot, tree, changed))
    return World(name, made, pushes)


def _text(chance: random.Random, size: int) -> bytes:
    words: list[str] = []
    length = 0
    while length < size:
        words.append(f"{chance.choice(WORDS)}{chance.randint(0, 999)}")
        length += len(words[-1]) + 1
    return (" ".join(words) + "\n").encode()


def _noise(chance: random.Random, size: int) -> bytes:
    return chance.randbytes(size)


def _edit(chance: random.Random, data: bytes) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] + _text(chance, 60) + data[at + 60 :]
