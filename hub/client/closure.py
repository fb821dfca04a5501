"""Whether a received pack is complete: nothing that a branch reaches is missing in it."""

from __future__ import annotations

from collections.abc import Mapping

from hub.client.errors import VerificationFailed
from hub.pack.format import Kind
from hub.pack.reader import PackReader
from hub.records import EMPTY_OBJECT_ID, Commit, Snapshot


def check_complete(reader: PackReader, tips: Mapping[str, str], branch: str) -> tuple[Commit, Snapshot, int]:
    """Check that the pack holds every tip, its whole ancestry, their snapshots and their objects.

    `tips` is branch → commit id. Returns the tip of `branch`, its snapshot, and how many commits there are.
    The pack must have passed `verify_pack`. Raises VerificationFailed that names what is missing.
    """
    commits = {commit.commit_id: commit for commit in reader.commits()}
    reached = _ancestry(commits, tips)
    head = commits[tips[branch]]
    objects = {entry.entity_id for entry in reader.entries if entry.kind is Kind.OBJECT} | {EMPTY_OBJECT_ID}
    needed = {commits[commit_id].snapshot_id for commit_id in reached}
    wanted: Snapshot | None = None
    for snapshot in reader.snapshots():
        missing = set(snapshot.manifest.values()) - objects
        if missing:
            raise _incomplete(f"object {min(missing)}, which snapshot {snapshot.snapshot_id} names")
        needed.discard(snapshot.snapshot_id)
        if snapshot.snapshot_id == head.snapshot_id:
            wanted = snapshot
    if needed:
        raise _incomplete(f"snapshot {min(needed)}")
    if wanted is None:
        raise _incomplete(f"snapshot {head.snapshot_id}")
    return head, wanted, len(reached)


def _ancestry(commits: Mapping[str, Commit], tips: Mapping[str, str]) -> set[str]:
    reached: set[str] = set()
    waiting = list(tips.values())
    while waiting:
        commit_id = waiting.pop()
        if commit_id in reached:
            continue
        commit = commits.get(commit_id)
        if commit is None:
            raise _incomplete(f"commit {commit_id}")
        reached.add(commit_id)
        waiting.extend(commit.parents)
    return reached


def _incomplete(what: str) -> VerificationFailed:
    return VerificationFailed(f"The hub sent an incomplete pack: it lacks {what}.")
