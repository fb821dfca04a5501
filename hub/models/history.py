"""Commits, snapshots and branches, and the set queries over history."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import DateTime, FetchedValue, ForeignKey, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Mapped, Session, mapped_column

from hub.models.base import Digest, Model
from hub.models.sets import Ids, bites


class Snapshot(Model):
    """A whole tree: path → object id. `manifest` is `hub.records.encode_manifest`'s form."""

    __tablename__ = "snapshot"

    repository_id: Mapped[UUID] = mapped_column(ForeignKey("hub.repository.repository_id"), primary_key=True)
    snapshot_id: Mapped[str] = mapped_column(Digest, primary_key=True)
    manifest: Mapped[bytes]
    created_at: Mapped[str]


class Commit(Model):
    """A commit. `record` is what was received, the other columns are extracted from it."""

    __tablename__ = "commit"

    repository_id: Mapped[UUID] = mapped_column(primary_key=True)
    commit_id: Mapped[str] = mapped_column(Digest, primary_key=True)
    snapshot_id: Mapped[str] = mapped_column(Digest)
    parent_commit_id: Mapped[str | None] = mapped_column(Digest)
    parent2_commit_id: Mapped[str | None] = mapped_column(Digest)
    generation: Mapped[int]
    author: Mapped[str]
    message: Mapped[str]
    committed_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    record: Mapped[bytes]


class Branch(Model):
    """A name for a commit."""

    __tablename__ = "branch"

    repository_id: Mapped[UUID] = mapped_column(ForeignKey("hub.repository.repository_id"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    head_commit_id: Mapped[str] = mapped_column(Digest)
    updated_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=FetchedValue())


@dataclass(frozen=True, slots=True)
class Node:
    """A commit's place in history: what walking needs, without its record."""

    commit_id: str
    snapshot_id: str
    parents: tuple[str, ...]
    generation: int


def branch_heads(session: Session, repository_id: UUID) -> dict[str, str]:
    """Branch name → head, by name."""
    rows = session.execute(
        select(Branch.name, Branch.head_commit_id).where(Branch.repository_id == repository_id).order_by(Branch.name)
    )
    return dict(rows.all())


def head_snapshots(session: Session, repository_id: UUID) -> dict[str, str]:
    """Branch name → snapshot of its head: what a client compares its tree with."""
    rows = session.execute(
        select(Branch.name, Commit.snapshot_id)
        .join(
            Commit,
            (Commit.repository_id == Branch.repository_id) & (Commit.commit_id == Branch.head_commit_id),
        )
        .where(Branch.repository_id == repository_id)
        .order_by(Branch.name)
    )
    return dict(rows.all())


def generations(session: Session, repository_id: UUID, commit_ids: Iterable[str]) -> dict[str, int]:
    """Generation of each of these commits that the repository has."""
    found: dict[str, int] = {}
    for bite in bites(commit_ids):
        rows = session.execute(GENERATIONS, {"repository_id": repository_id, "ids": bite})
        found.update((bytes(commit_id).hex(), generation) for commit_id, generation in rows)
    return found


def known_snapshots(session: Session, repository_id: UUID, snapshot_ids: Iterable[str]) -> set[str]:
    """Those of the snapshots that the repository has."""
    found: set[str] = set()
    for bite in bites(snapshot_ids):
        rows = session.execute(KNOWN_SNAPSHOTS, {"repository_id": repository_id, "ids": bite})
        found.update(bytes(snapshot_id).hex() for (snapshot_id,) in rows)
    return found


def is_ancestor(session: Session, repository_id: UUID, ancestor: str, descendants: Iterable[str]) -> bool:
    """Whether `ancestor` is one of the `descendants` or an ancestor of one of them.

    Walks from the descendants and never below the ancestor's generation: an ancestor's is always smaller.
    """
    start = Ids(bytes.fromhex(commit_id) for commit_id in descendants)
    parameters = {"repository_id": repository_id, "old": bytes.fromhex(ancestor), "ids": start}
    return bool(session.execute(IS_ANCESTOR, parameters).scalar_one())


def ancestors(session: Session, repository_id: UUID, commit_ids: Iterable[str]) -> dict[str, Node]:
    """The commits themselves and all their ancestors, parents before children."""
    start = Ids(bytes.fromhex(commit_id) for commit_id in commit_ids)
    rows = session.execute(ANCESTORS, {"repository_id": repository_id, "ids": start})
    return {
        bytes(row.commit_id).hex(): Node(
            bytes(row.commit_id).hex(),
            bytes(row.snapshot_id).hex(),
            tuple(bytes(p).hex() for p in (row.parent_commit_id, row.parent2_commit_id) if p is not None),
            row.generation,
        )
        for row in rows
    }


def records(session: Session, repository_id: UUID, commit_ids: list[str]) -> Iterator[bytes]:
    """The commits' records as received, in the order given."""
    for bite in bites(commit_ids, 1_000):
        rows = session.execute(RECORDS, {"repository_id": repository_id, "ids": bite})
        yield from (bytes(record) for (record,) in rows)


def snapshots(session: Session, repository_id: UUID, snapshot_ids: list[str]) -> Iterator[tuple[str, bytes, str]]:
    """(snapshot id, encoded manifest, created_at) of each, in the order given, a few at a time."""
    for bite in bites(snapshot_ids, 64):
        rows = session.execute(SNAPSHOTS, {"repository_id": repository_id, "ids": bite})
        yield from ((bytes(snapshot_id).hex(), bytes(manifest), at) for snapshot_id, manifest, at in rows)


def move_branch(session: Session, repository_id: UUID, name: str, head: str) -> None:
    """Set the branch's head; the caller holds the repository's lock and has decided."""
    statement = insert(Branch).values(repository_id=repository_id, name=name, head_commit_id=head)
    session.execute(
        statement.on_conflict_do_update(
            index_elements=[Branch.repository_id, Branch.name],
            set_={"head_commit_id": statement.excluded.head_commit_id, "updated_at": text("now()")},
        )
    )


GENERATIONS = text(
    "SELECT commit_id, generation FROM hub.commit WHERE repository_id = :repository_id AND commit_id = ANY(:ids)"
)

KNOWN_SNAPSHOTS = text(
    "SELECT snapshot_id FROM hub.snapshot WHERE repository_id = :repository_id AND snapshot_id = ANY(:ids)"
)

IS_ANCESTOR = text("""
WITH RECURSIVE floor AS (
    SELECT generation FROM hub.commit WHERE repository_id = :repository_id AND commit_id = :old
), walk (commit_id) AS (
    SELECT unnest(:ids)
    UNION
    SELECT parent.commit_id
    FROM walk
    JOIN hub.commit child ON child.repository_id = :repository_id AND child.commit_id = walk.commit_id
    JOIN hub.commit parent ON parent.repository_id = :repository_id
        AND parent.commit_id IN (child.parent_commit_id, child.parent2_commit_id)
    WHERE parent.generation >= (SELECT generation FROM floor)
)
SELECT EXISTS (SELECT FROM walk WHERE commit_id = :old)
""")

ANCESTORS = text("""
WITH RECURSIVE walk (commit_id) AS (
    SELECT unnest(:ids)
    UNION
    SELECT parent.commit_id
    FROM walk
    JOIN hub.commit child ON child.repository_id = :repository_id AND child.commit_id = walk.commit_id
    CROSS JOIN LATERAL (VALUES (child.parent_commit_id), (child.parent2_commit_id)) parent (commit_id)
    WHERE parent.commit_id IS NOT NULL
)
SELECT c.commit_id, c.snapshot_id, c.parent_commit_id, c.parent2_commit_id, c.generation
FROM walk JOIN hub.commit c ON c.repository_id = :repository_id AND c.commit_id = walk.commit_id
ORDER BY c.generation, c.commit_id
""")

RECORDS = text("""
SELECT c.record
FROM unnest(:ids) WITH ORDINALITY given (commit_id, place)
JOIN hub.commit c ON c.repository_id = :repository_id AND c.commit_id = given.commit_id
ORDER BY given.place
""")

SNAPSHOTS = text("""
SELECT s.snapshot_id, s.manifest, s.created_at
FROM unnest(:ids) WITH ORDINALITY given (snapshot_id, place)
JOIN hub.snapshot s ON s.repository_id = :repository_id AND s.snapshot_id = given.snapshot_id
ORDER BY given.place
""")
