"""What gc asks the database: which keys have a name, which marks are ripe, what has lain unadopted for too long."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import bindparam, delete, select, text
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA, TEXT
from sqlalchemy.orm import Session

from hub.models.doomed import Role
from hub.models.mpack import FetchMpackCache, Mpack
from hub.models.repository import Repository


def lock_if_there(session: Session, repository_id: UUID) -> None:
    """Lock the repository as a push does. There may be none any more; then there is nobody to keep out."""
    session.execute(
        select(Repository.repository_id)
        .where(Repository.repository_id == repository_id)
        .with_for_update(key_share=True)
    )


def named_mpacks(session: Session, packs: Sequence[tuple[UUID, str]]) -> set[tuple[UUID, str]]:
    """Those of the packs that have a row."""
    rows = session.execute(
        NAMED,
        {"repositories": [str(item) for item, _ in packs], "ids": [bytes.fromhex(mpack_id) for _, mpack_id in packs]},
    )
    return {(row.repository_id, bytes(row.mpack_id).hex()) for row in rows}


def named_caches(session: Session, packs: Sequence[tuple[UUID, str]]) -> set[tuple[UUID, str]]:
    """The prebuilt packs and bodies that the clone cache names, of the repositories of these."""
    rows = session.execute(
        select(FetchMpackCache.repository_id, FetchMpackCache.mpack_id, FetchMpackCache.body_id)
        .where(FetchMpackCache.repository_id.in_({repository_id for repository_id, _ in packs}))
        .distinct()
    ).all()
    return {(row.repository_id, name) for row in rows for name in (row.mpack_id, row.body_id) if name is not None}


def staged_before(session: Session, repository_id: UUID | None, before: datetime, limit: int) -> list[UUID]:
    """Repositories (or this one) with staged packs from before this instant."""
    statement = select(Mpack.repository_id).where(Mpack.state == "staged", Mpack.created_at < before).distinct()
    if repository_id is not None:
        statement = statement.where(Mpack.repository_id == repository_id)
    return list(session.scalars(statement.limit(limit)))


def drop_staged(session: Session, repository_id: UUID, before: datetime) -> list[str]:
    """Delete the rows of these staged packs; their ids. The caller holds the repository's lock."""
    return list(
        session.scalars(
            delete(Mpack)
            .where(Mpack.repository_id == repository_id, Mpack.state == "staged", Mpack.created_at < before)
            .returning(Mpack.mpack_id)
        )
    )


def drop_presigned(session: Session, repository_id: UUID | None, before: datetime) -> None:
    """Forget single objects that were presigned before this instant."""
    session.execute(DROP_PRESIGNED, {"repository_id": repository_id, "before": before})


def ripe_keys(
    session: Session, store: Role, before: datetime, *, repository_id: UUID | None, after: str, limit: int
) -> list[str]:
    """Keys behind `after` that were marked before this instant and wait for their deletion, in order."""
    return list(
        session.scalars(
            RIPE, {"store": store, "before": before, "repository_id": repository_id, "after": after, "limit": limit}
        )
    )


def lock_ripe(session: Session, store: Role, before: datetime, keys: Sequence[str]) -> list[str]:
    """Lock those marks that still stand and are ripe; what somebody else has locked is left out."""
    return list(session.scalars(LOCK_RIPE, {"store": store, "before": before, "keys": list(keys)}))


def settle_doomed(session: Session, store: Role, deleted: Sequence[str], named: Sequence[str]) -> None:
    """Note that these bytes are gone, and that those have a name after all."""
    session.execute(MARK_DELETED, {"store": store, "keys": list(deleted)})
    session.execute(UNMARK, {"store": store, "keys": list(named)})


def forget_doomed(session: Session, before: datetime) -> None:
    """Forget the bytes that were deleted before this instant."""
    session.execute(FORGET, {"before": before})


KEYS = bindparam("keys", type_=ARRAY(TEXT))

NAMED = text("""
SELECT m.repository_id, m.mpack_id
FROM unnest(CAST(:repositories AS uuid[]), :ids) given (repository_id, mpack_id)
JOIN hub.mpack m USING (repository_id, mpack_id)
""").bindparams(bindparam("ids", type_=ARRAY(BYTEA)))

DROP_PRESIGNED = text("""
DELETE FROM hub.presigned_object
WHERE presigned_at < :before AND (CAST(:repository_id AS uuid) IS NULL OR repository_id = :repository_id)
""")

RIPE = text("""
SELECT key FROM hub.doomed
WHERE store = :store AND deleted_at IS NULL AND doomed_at <= :before AND key > :after
    AND (CAST(:repository_id AS text) IS NULL OR split_part(key, '/', 2) = CAST(:repository_id AS text))
ORDER BY key
LIMIT :limit
""")

LOCK_RIPE = text("""
SELECT key FROM hub.doomed
WHERE store = :store AND deleted_at IS NULL AND doomed_at <= :before AND key = ANY(:keys)
ORDER BY key
FOR UPDATE SKIP LOCKED
""").bindparams(KEYS)

MARK_DELETED = text("UPDATE hub.doomed SET deleted_at = now() WHERE store = :store AND key = ANY(:keys)").bindparams(
    KEYS
)

UNMARK = text("DELETE FROM hub.doomed WHERE store = :store AND key = ANY(:keys)").bindparams(KEYS)

FORGET = text("DELETE FROM hub.doomed WHERE deleted_at < :before")
