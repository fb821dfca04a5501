"""Check one repository: history, packs, clone cache. In memory is a page of rows, or the index of one pack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.orm import Session

from hub.errors import HubError
from hub.fsck.caches import check_cache
from hub.fsck.findings import Code, Finding
from hub.fsck.packs import check_pack
from hub.held import held_objects
from hub.models import Commit, Mpack, Principal, Repository, Snapshot
from hub.models.gaps import cut_commits
from hub.records import decode_manifest, parse_commit, snapshot_id
from hub.services import Services

COMMITS = 1_000
SNAPSHOTS = 64
"""Rows that are looked at together."""
OBJECTS_TOLD = 100
"""Missing objects of one repository that are told by name."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The repository that is checked. `advance` is called with the number of bytes that were looked at."""

    services: Services
    repository_id: UUID
    path: str
    with_bytes: bool
    advance: Callable[[int], None]

    def found(self, code: Code, subject: str, detail: str) -> Finding:
        """A finding in this repository."""
        return Finding(self.repository_id, self.path, code, subject, detail)


def repositories(session: Session, path: str | None = None) -> list[tuple[UUID, str]]:
    """(id, OWNER/SLUG) of all repositories, or of the one at `path`, by name."""
    rows = session.execute(
        select(Repository.repository_id, Principal.name, Repository.slug)
        .join(Principal, Principal.principal_id == Repository.owner_id)
        .where(Repository.deleted_at.is_(None))
        .order_by(Principal.name, Repository.slug)
    )
    found = [(row.repository_id, f"{row.name}/{row.slug}") for row in rows]
    return [item for item in found if path is None or item[1] == path]


def check_repository(checked: Checked) -> Iterator[Finding]:
    """All that is wrong with a repository. Raises storage's Unavailable."""
    yield from _commits(checked)
    yield from _snapshots(checked)
    for mpack_id in _packs(checked):
        yield from check_pack(checked, mpack_id)
    yield from check_cache(checked)


def _commits(checked: Checked) -> Iterator[Finding]:
    after = ""
    while True:
        with checked.services.sessions() as session:
            rows = session.scalars(
                select(Commit)
                .where(Commit.repository_id == checked.repository_id, Commit.commit_id > after)
                .order_by(Commit.commit_id)
                .limit(COMMITS)
            ).all()
        if not rows:
            break
        after = rows[-1].commit_id
        for row in rows:
            if reason := _wrong_commit(row):
                yield checked.found(Code.COMMIT_WRONG, row.commit_id, reason)
    with checked.services.sessions() as session:
        cut = cut_commits(session, checked.repository_id)
    for commit_id, reason in cut:
        yield checked.found(Code.COMMIT_MISSING, commit_id, reason)


def _wrong_commit(row: Commit) -> str | None:
    try:
        commit = parse_commit(row.record)
    except HubError as error:
        return error.sentence
    if commit.commit_id != row.commit_id:
        return f"its record has the id {commit.commit_id}"
    parents = [parent for parent in (row.parent_commit_id, row.parent2_commit_id) if parent is not None]
    if commit.snapshot_id != row.snapshot_id or sorted(commit.parents) != sorted(parents):
        return "its columns name another snapshot or other parents than its record"
    return None


def _snapshots(checked: Checked) -> Iterator[Finding]:
    after, told = "", 0
    while True:
        with checked.services.sessions() as session:
            rows = session.scalars(
                select(Snapshot)
                .where(Snapshot.repository_id == checked.repository_id, Snapshot.snapshot_id > after)
                .order_by(Snapshot.snapshot_id)
                .limit(SNAPSHOTS)
            ).all()
            if not rows:
                return
            after = rows[-1].snapshot_id
            named: dict[str, str] = {}
            for row in rows:
                try:
                    manifest = decode_manifest(row.manifest)
                except HubError as error:
                    yield checked.found(Code.SNAPSHOT_WRONG, row.snapshot_id, error.sentence)
                    continue
                if (real := snapshot_id(manifest)) != row.snapshot_id:
                    yield checked.found(Code.SNAPSHOT_WRONG, row.snapshot_id, f"its manifest has the id {real}")
                for path, object_id in manifest.items():
                    named.setdefault(object_id, path)
            missing = sorted(named.keys() - held_objects(session, checked.repository_id, named))
        for object_id in missing[: OBJECTS_TOLD - told]:
            yield checked.found(Code.OBJECT_MISSING, object_id, f"it is the file {named[object_id]!r} of a snapshot")
        told += len(missing[: OBJECTS_TOLD - told])


def _packs(checked: Checked) -> list[str]:
    with checked.services.sessions() as session:
        return list(
            session.scalars(
                select(Mpack.mpack_id).where(Mpack.repository_id == checked.repository_id).order_by(Mpack.created_at)
            )
        )


def pack_bytes(session: Session, repository_ids: list[UUID]) -> int:
    """The size of all packs of these repositories: what a check has to read."""
    sizes = session.scalars(select(Mpack.size).where(Mpack.repository_id.in_(repository_ids)))
    return sum(sizes)
