"""`push.file_last_commits`: for each path of a branch's head the last commit that changed it.

Along first parents: what a merge brings in from its other parent was changed by the merge, as on the branch it was.
From the head backwards each commit is compared with its first parent, for those paths only whose commit is not found
yet, down to a commit for which all is known from before: the former head, when the branch has moved on.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import islice
from uuid import UUID

import zstandard
from sqlalchemy import select
from sqlalchemy.orm import Session

from hub.manifest import ID_BYTES
from hub.models import Commit
from hub.models.facts import LastCommits, keep_only, known_tips
from hub.models.history import snapshots
from hub.records import decode_manifest

STEPS = 64
"""Commits that are read together."""
COUNT = struct.Struct("<I")


def file_last_commits(
    session: Session, repository_id: UUID, tips: list[str], checkpoint: Callable[[], None] = lambda: None
) -> dict[str, int]:
    """Work it out for these heads, as far as it is not known; how many commits were looked at. Forgets former heads.

    In memory are the paths of one tree, and one more tree.
    """
    known = known_tips(session, LastCommits, repository_id)
    steps = 0
    for tip in tips:
        if tip not in known:
            manifest, found, count = _last_commits(session, repository_id, tip, known, checkpoint)
            session.add(LastCommits(repository_id=repository_id, commit_id=tip, encoded=encode(manifest, found)))
            session.flush()
            known.add(tip)
            steps += count
    keep_only(session, LastCommits, repository_id, tips)
    return {"heads": len(tips), "commits": steps}


def read_last_commits(session: Session, repository_id: UUID, commit_id: str) -> dict[str, str] | None:
    """Path → last commit, in the order of paths; None when it is not known of this commit."""
    row = session.get(LastCommits, (repository_id, commit_id))
    return None if row is None else decode(manifest_of(session, repository_id, commit_id), row.encoded)


def encode(manifest: dict[str, str], found: dict[str, str]) -> bytes:
    """The commits by path, compact: each id once, then its number for each path in order; compressed."""
    commits = {commit_id: number for number, commit_id in enumerate(sorted(set(found.values())))}
    numbers = struct.pack(f"<{len(manifest)}I", *(commits[found[path]] for path in sorted(manifest)))
    raw = COUNT.pack(len(commits)) + bytes.fromhex("".join(commits)) + numbers
    return zstandard.ZstdCompressor(level=3, write_checksum=False).compress(raw)


def decode(manifest: dict[str, str], encoded: bytes) -> dict[str, str]:
    """What `encode` was given for this manifest."""
    raw = zstandard.ZstdDecompressor().decompress(encoded)
    (count,) = COUNT.unpack_from(raw)
    ids = [raw[start : start + ID_BYTES].hex() for start in range(COUNT.size, COUNT.size + count * ID_BYTES, ID_BYTES)]
    numbers = struct.unpack_from(f"<{len(manifest)}I", raw, COUNT.size + count * ID_BYTES)
    return {path: ids[number] for path, number in zip(sorted(manifest), numbers, strict=True)}


def _last_commits(
    session: Session, repository_id: UUID, tip: str, known: set[str], checkpoint: Callable[[], None]
) -> tuple[dict[str, str], dict[str, str], int]:
    """(manifest of the tip, path → last commit, commits looked at)."""
    manifest = manifest_of(session, repository_id, tip)
    open_, found, child, steps = dict(manifest), {}, tip, 1
    line = _first_parents(session, repository_id, tip)
    while open_ and (some := list(islice(line, STEPS))):
        checkpoint()
        trees = {item: raw for item, raw, _ in snapshots(session, repository_id, [tree for _, tree in some])}
        for commit_id, tree in some:
            steps += 1
            parent = decode_manifest(trees[tree])
            for path in [path for path, object_id in open_.items() if parent.get(path) != object_id]:
                found[path] = child
                del open_[path]
            if commit_id in known and open_:
                before = read_last_commits(session, repository_id, commit_id) or {}
                found.update((path, before[path]) for path in open_)
                open_.clear()
            child = commit_id
            if not open_:
                break
    found.update(dict.fromkeys(open_, child))
    return manifest, found, steps


def _first_parents(session: Session, repository_id: UUID, commit_id: str) -> Iterator[tuple[str, str]]:
    """(commit, snapshot) of the first parent, of its first parent, and so on."""
    parent = session.get_one(Commit, (repository_id, commit_id)).parent_commit_id
    while parent is not None:
        row = session.execute(
            select(Commit.commit_id, Commit.snapshot_id, Commit.parent_commit_id).where(
                Commit.repository_id == repository_id, Commit.commit_id == parent
            )
        ).one()
        yield row.commit_id, row.snapshot_id
        parent = row.parent_commit_id


def manifest_of(session: Session, repository_id: UUID, commit_id: str) -> dict[str, str]:
    """The tree of a commit: path → object id."""
    tree = session.scalars(
        select(Commit.snapshot_id).where(Commit.repository_id == repository_id, Commit.commit_id == commit_id)
    ).one()
    ((_, raw, _),) = snapshots(session, repository_id, [tree])
    return decode_manifest(raw)
