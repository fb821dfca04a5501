"""The rows of the commits and snapshots that a push brings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from uuid import UUID

from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from hub import history
from hub.models import Commit as CommitRow
from hub.models import Snapshot as SnapshotRow
from hub.records import Commit, Snapshot, encode_manifest


def write_history(
    session: Session, repository_id: UUID, commits: Sequence[Commit], snapshots: Iterator[Snapshot]
) -> None:
    """Snapshots, then commits, parents first. First write wins: what is there already has the same id."""
    statement = insert(SnapshotRow).on_conflict_do_nothing()
    while some := list(islice(snapshots, 64)):
        session.execute(
            statement,
            [
                {
                    "repository_id": repository_id,
                    "snapshot_id": snapshot.snapshot_id,
                    "manifest": encode_manifest(snapshot.manifest),
                    "created_at": snapshot.created_at,
                }
                for snapshot in some
            ],
        )
    known = history.parent_generations(session, repository_id, commits)
    rows = [
        {
            "repository_id": repository_id,
            "commit_id": commit.commit_id,
            "snapshot_id": commit.snapshot_id,
            "parent_commit_id": commit.parents[0] if commit.parents else None,
            "parent2_commit_id": commit.parents[1] if len(commit.parents) > 1 else None,
            "generation": generation,
            "author": commit.author,
            "message": commit.message,
            "committed_at": datetime.fromisoformat(commit.committed_at),
            "record": commit.raw,
        }
        for commit, generation in history.in_order(commits, known)
    ]
    session.execute(insert(CommitRow).on_conflict_do_nothing(), rows)
