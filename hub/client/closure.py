"""Whether a received pack is complete: nothing that its tips reach is missing in it, or here already."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from hub.client.errors import VerificationFailed
from hub.pack.format import Kind
from hub.pack.reader import PackReader
from hub.records import EMPTY_OBJECT_ID, Commit


class Known(NamedTuple):
    """The ids of what is here already; a known commit brings along all that it reaches."""

    commits: Collection[str] = frozenset()
    snapshots: Collection[str] = frozenset()
    objects: Collection[str] = frozenset()


NOTHING = Known()


def check_complete(
    reader: PackReader, commits: Mapping[str, Commit], tips: Collection[str], known: Known = NOTHING
) -> dict[str, Commit]:
    """Check that the pack holds every tip, its ancestry up to known commits, their snapshots and objects.

    `commits` are those of the pack, by id, `tips` the ids of some. Returns the commits reached. The pack must have
    passed `verify_pack` or `verify_records`. Raises VerificationFailed that names what is missing.
    """
    reached = _ancestry(commits, tips, known)
    needed = {commit.snapshot_id for commit in reached.values()}
    lacking = needed.difference(known.snapshots, reader.ids(Kind.SNAPSHOT))
    if lacking:
        raise _incomplete(f"snapshot {min(lacking)}")
    lacking = reader.named_objects().difference(reader.ids(Kind.OBJECT), known.objects, (EMPTY_OBJECT_ID,))
    if lacking:
        raise _incomplete(f"object {min(lacking)}, which a snapshot names")
    return reached


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
