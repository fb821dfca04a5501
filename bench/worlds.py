"""The repositories that are pushed and cloned. Seeded: the same bytes in every run."""

from __future__ import annotations

import random
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import IO

from hub import records
from hub.pack.format import PackSummary
from hub.pack.writer import PackWriter

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
WORDS = ("pack", "clone", "branch", "commit", "lease", "token", "queue", "worker", "index", "block", "range", "digest")


@dataclass
class Built:
    """A repository as one pack, and what a clone of it must hold."""

    name: str
    file: IO[bytes]
    summary: PackSummary
    head: str
    tree: dict[str, bytes]


def w1() -> Built:
    """1,000 text files of 1 to 8 KB and 50 commits of 20 edits each."""
    return _build("W1", files=1_000, commits=50, edits=20, size=(1_000, 8_000), text=True)


def w2() -> Built:
    """40 files of 5 MB of random bytes and 5 commits of 4 rewrites each."""
    return _build("W2", files=40, commits=5, edits=4, size=(5_000_000, 5_000_000), text=False)


def w3() -> Built:
    """10,000 text files of 0.5 to 2 KB and 10 commits of 10 edits each."""
    return _build("W3", files=10_000, commits=10, edits=10, size=(500, 2_000), text=True)


def _build(name: str, *, files: int, commits: int, edits: int, size: tuple[int, int], text: bool) -> Built:
    chance = random.Random(name)
    content = _text if text else _noise
    tree = {f"dir{n % 50:02}/file{n:05}.txt": content(chance, chance.randint(*size)) for n in range(files)}
    versions = {path: [data] for path, data in tree.items()}
    snapshots, made = [], []
    for number in range(commits):
        if number:
            for path in chance.sample(sorted(tree), edits):
                tree[path] = _edit(chance, tree[path]) if text else content(chance, len(tree[path]))
                versions[path].append(tree[path])
        at = (BEGIN + timedelta(minutes=number)).isoformat()
        snapshot = records.snapshot_record({path: records.object_id(data) for path, data in tree.items()}, at)
        snapshots.append(records.parse_snapshot(snapshot))
        parents = [made[-1].commit_id] if made else []
        record = records.commit_record(
            snapshot_id=snapshot["snapshot_id"], message=f"Commit {number}", committed_at=at, parents=parents
        )
        made.append(records.parse_commit(record))
    file = tempfile.TemporaryFile()  # noqa: SIM115  # it lives as long as what is built
    writer = PackWriter(file)
    for path in sorted(versions):
        for data in versions[path]:
            writer.add_object(records.object_id(data), data)
    for item in snapshots:
        writer.add_snapshot(item)
    for commit in made:
        writer.add_commit(commit)
    return Built(name, file, writer.finish(), made[-1].commit_id, tree)


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
