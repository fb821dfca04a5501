"""Pushing a Muse working copy: its own commits, snapshots and objects, as they are, as far as the hub lacks them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from hub.client.answers import Job
from hub.client.errors import BadInput, Refused
from hub.client.muse_store import MuseStore
from hub.client.progress import Progress
from hub.client.sending import Move, send
from hub.client.transport import Remote
from hub.errors import TooLarge
from hub.pack.format import PackSummary
from hub.pack.writer import PackWriter
from hub.records import EMPTY_OBJECT_ID, Commit, Invalid


@dataclass(frozen=True, slots=True)
class MusePushResult:
    """What a push of Muse commits did. `push_id` is None when everything was up to date; sizes are bytes."""

    url: str
    branch: str
    commit_id: str
    commits_sent: int
    objects_sent: int
    bytes_sent: int
    push_id: str | None
    jobs: tuple[Job, ...]

    @property
    def up_to_date(self) -> bool:
        """Whether the hub had the branch's commit already."""
        return self.push_id is None


def push_muse(
    remote: Remote, directory: Path, progress: Progress, *, branch: str | None = None, force: bool = False
) -> MusePushResult:
    """Bring a branch of the Muse repository in `directory` (None: the one checked out) to the hub.

    Nothing is written in the directory. A branch of the hub that has commits which this one does not contain
    is refused unless `force`. Raises the errors of Remote, and BadInput for a damaged repository.
    """
    store = MuseStore(directory)
    named = branch or store.current_branch()
    head = store.head(named)
    if store.commit(head) is None:
        raise BadInput(f"The Muse repository lacks commit {head}; `muse verify` looks for more.")
    refs = remote.refs()
    heads = refs.branch_heads
    there = heads.get(named)
    if there == head:
        return MusePushResult(remote.url, named, head, 0, 0, 0, None, ())
    progress.begin("Reading commits", None)
    mine = _ancestry(store, [head])
    if there is not None and there not in mine and not force:
        raise Refused(
            409,
            "DIVERGED",
            f"The branch {named} of the hub is at {there[:12]}, which yours does not contain: `muse pull` brings it, "
            "--force replaces it.",
        )
    held = _ancestry(store, heads.values())
    # A new branch at a commit that the hub has: the pack brings that commit again.
    commits = [commit for commit_id, commit in mine.items() if commit_id not in held] or [mine[head]]
    with tempfile.TemporaryFile() as file:
        summary = _write_pack(file, store, remote if heads else None, commits, progress)
        pushed = send(remote, file, summary, Move(named, head, there, force=force), refs.inline_bytes)
    return MusePushResult(
        remote.url, named, head, len(commits), summary.objects, summary.size, pushed.push_id, pushed.jobs
    )


def _ancestry(store: MuseStore, tips: Iterable[str]) -> dict[str, Commit]:
    """Read the commits that `tips` reach, parents before children; what is not here ends the walk."""
    ordered: dict[str, Commit] = {}
    met: dict[str, Commit | None] = {}
    stack = [(tip, False) for tip in tips]
    while stack:
        commit_id, parents_done = stack.pop()
        commit = met.get(commit_id)
        if parents_done and commit is not None:
            ordered[commit_id] = commit
        elif commit_id not in met:
            met[commit_id] = commit = store.commit(commit_id)
            if commit is not None:
                stack.append((commit_id, True))
                stack.extend((parent, False) for parent in commit.parents)
    return ordered


def _write_pack(
    out: BinaryIO, store: MuseStore, remote: Remote | None, commits: list[Commit], progress: Progress
) -> PackSummary:
    """Write commits, oldest first, their snapshots, and those of their objects that the hub lacks.

    `remote` None: the hub's repository is empty, so it lacks all of them.
    """
    first: dict[str, tuple[str, int]] = {}
    writer = PackWriter(out)
    try:
        # Before the objects, so that each is read and checked once: one manifest takes longer than a hundred objects.
        for number, snapshot_id in enumerate(dict.fromkeys(commit.snapshot_id for commit in commits)):
            snapshot = store.snapshot(snapshot_id)
            writer.add_snapshot(snapshot)
            for path, object_id in snapshot.manifest.items():
                first.setdefault(object_id, (path, number))
        first.pop(EMPTY_OBJECT_ID, None)
        missing = set(first) if remote is None else remote.filter_objects(first)
        progress.begin("Packing", len(missing))
        for done, object_id in enumerate(sorted(missing, key=first.__getitem__), start=1):
            with store.open_object(object_id, first[object_id][0]) as content:
                writer.add_object(object_id, content)
            progress.at(done)
        for commit in commits:
            writer.add_commit(commit)
        summary = writer.finish()
        out.flush()
    except (Invalid, TooLarge) as error:
        raise BadInput(f"The Muse repository cannot be pushed: {error.sentence}.") from None
    except OSError as error:
        raise BadInput(f"The pack cannot be written to the temporary directory: {error.strerror}.") from None
    return summary
