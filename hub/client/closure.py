"""Whether a received pack is complete: nothing that its tips reach is missing in it, or here already."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from hub.client.errors import VerificationFailed
from hub.pack.format import Kind
from hub.pack.reader import PackReader
from hub.records import EMPTY_OBJECT_ID, Commit, Snapshot


@dataclass(frozen=True, slots=True)
class Known:
    """The ids of what is here already; a known commit brings along all that it reaches."""

    commits: Collection[str] = frozenset()
    snapshots: Collection[str] = frozenset()
    objects: Collection[str] = frozenset()


NOTHING = Known()


def check_complete(
    reader: PackReader, tips: Collection[str], known: Known = NOTHING, keep: str | None = None
) -> tuple[dict[str, Commit], Snapshot | None]:
    """Check that the pack holds every tip, its ancestry up to known commits, their snapshots and objects.

    `tips` are commit ids. Returns the commits reached and, when it lies in the pack, the snapshot of the tip
    `keep`. The pack must have passed `verify_pack`. Raises VerificationFailed that names what is missing.
    """
    reached = _ancestry({commit.commit_id: commit for commit in reader.commits()}, tips, known)
    objects = {entry.entity_id for entry in reader.entries if entry.kind is Kind.OBJECT} | {EMPTY_OBJECT_ID}
    needed = {commit.snapshot_id for commit in reached.values()}.difference(known.snapshots)
    kept_id = reached[keep].snapshot_id if keep in reached else None
    kept: Snapshot | None = None
    for snapshot in reader.snapshots():
        missing = (set(snapshot.manifest.values()) - objects).difference(known.objects)
        if missing:
            raise _incomplete(f"object {min(missing)}, which snapshot {snapshot.snapshot_id} names")
        needed.discard(snapshot.snapshot_id)
        if snapshot.snapshot_id == kept_id:
            kept = snapshot
    if needed:
        raise _incomplete(f"snapshot {min(needed)}")
    return reached, kept


def _ancestry(commits: Mapping[str, Commit], tips: Collection[str], known: Known) -> dict[str, Commit]:
    reached: dict[str, Commit] = {}
    waiting = [tip for tip in tips if tip not in known.commits]
    while waiting:
        commit_id = waiting.pop()
        if commit_id in reached:
            continue
        commit = commits.get(commit_id)
        if commit is None:
            raise _incomplete(f"commit {commit_id}")
        reached[commit_id] = commit
        waiting.extend(parent for parent in commit.parents if parent not in known.commits)
    return reached


def _incomplete(what: str) -> VerificationFailed:
    return VerificationFailed(f"The hub sent an incomplete pack: it lacks {what}.")
