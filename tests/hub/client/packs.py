"""Real packs for the client's tests, sound and unsound ones, and what a hub says about them."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hub.pack.writer import PackWriter
from hub.records import Commit, Snapshot, commit_record, object_id, parse_commit, snapshot_id

WHEN = "2026-03-24T12:00:00+00:00"


@dataclass(frozen=True)
class History:
    """One pack: the commits of one branch, oldest first."""

    pack: bytes
    commits: tuple[Commit, ...]
    snapshots: tuple[Snapshot, ...]

    @property
    def mpack_id(self) -> str:
        return hashlib.sha256(self.pack).hexdigest()

    @property
    def head(self) -> str:
        return self.commits[-1].commit_id

    def offer(self, url: str, branch: str = "main") -> dict[str, object]:
        return {
            "mpack_id": self.mpack_id,
            "url": url,
            "size": len(self.pack),
            "tips": {branch: self.head},
            "default_branch": branch,
            "expires_at": "2026-03-24T13:00:00+00:00",
        }


def history(
    *trees: Mapping[str, bytes],
    leave_out: Sequence[str] = (),
    parent: str | None = None,
    message: str = "number",
    start: int = 0,
) -> History:
    """Make a history with a commit for each of `trees`; objects, snapshots and commits in `leave_out` are not packed.

    The messages count from `start`, so that the same commit can be made in another pack.
    Paths are not checked: the caller may be hostile.
    """
    out = io.BytesIO()
    writer = PackWriter(out)
    commits: list[Commit] = []
    snapshots: list[Snapshot] = []
    for number, tree in enumerate(trees, start):
        for _, content in sorted(tree.items()):
            if object_id(content) not in leave_out:
                writer.add_object(object_id(content), content)
        manifest = {path: object_id(content) for path, content in tree.items()}
        snapshots.append(Snapshot(snapshot_id(manifest), manifest, WHEN))
        before = commits[-1].commit_id if commits else parent
        record = commit_record(
            snapshot_id=snapshots[-1].snapshot_id,
            message=f"{message} {number}",
            committed_at=WHEN,
            parents=() if before is None else (before,),
        )
        commits.append(parse_commit(record))
    for snapshot in snapshots:
        if snapshot.snapshot_id not in leave_out:
            writer.add_snapshot(snapshot)
    for commit in commits:
        if commit.commit_id not in leave_out:
            writer.add_commit(commit)
    writer.finish()
    return History(out.getvalue(), tuple(commits), tuple(snapshots))


def history_after(
    old: History, *trees: Mapping[str, bytes], leave_out: Sequence[str] = (), message: str = "later"
) -> History:
    """Make the pack of further commits, without the objects that the last snapshot of `old` has."""
    known = old.snapshots[-1].manifest.values()
    return history(*trees, leave_out=[*leave_out, *known], parent=old.head, message=message)
