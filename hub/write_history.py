"""The rows of the commits and snapshots that a push brings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import chain, islice
from typing import Any
from uuid import UUID

from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from hub import history, models
from hub.records import Commit, Snapshot, encode_manifest

AHEAD_BYTES = 32 * 1024 * 1024
"""Manifests that are encoded before there is a transaction to write them in, and wait in memory."""

SnapshotRow = dict[str, Any]
"""The columns of a snapshot, by name."""


def snapshot_rows(repository_id: UUID, snapshots: Iterator[Snapshot]) -> Iterator[SnapshotRow]:
    """The rows of the snapshots, the first AHEAD_BYTES of them made now, the others when they are asked for."""
    rows: Iterator[SnapshotRow] = (
        {
            "repository_id": repository_id,
            "snapshot_id": snapshot.snapshot_id,
            "manifest": encode_manifest(snapshot.manifest),
            "created_at": snapshot.created_at,
        }
        for snapshot in snapshots
    )
    ahead: list[SnapshotRow] = []
    size = 0
    while size < AHEAD_BYTES and (row := next(rows, None)):
        ahead.append(row)
        size += len(row["manifest"])
    return chain(ahead, rows)


def write_history(
    session: Session, repository_id: UUID, commits: Sequence[Commit], snapshots: Iterator[SnapshotRow]
) -> None:
    """Snapshots, then commits, parents first. First write wins: what is there already has the same id."""
    statement = insert(models.Snapshot).on_conflict_do_nothing()
    while some := list(islice(snapshots, 64)):
        session.execute(statement, some)
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
    session.execute(insert(models.Commit).on_conflict_do_nothing(), rows)
