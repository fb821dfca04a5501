"""A large pack that was pushed whole and holds exactly what a clone needs: it is the clone, and no second one is built.

The archive then serves what else the cache would. Small packs are built anew all the same: it costs little, and they
compress better together.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import exists, func, select
from sqlalchemy.orm import Session

from hub.difference import Difference
from hub.keys import archive_key, cache_key
from hub.models import Mpack, MpackIndex
from hub.models.mpack import MpackBlock
from hub.pack.format import Kind
from hub.services import Services
from storage import NotFound, Store

Place = tuple[Store, str]
"""The store that has a pack, and its key there."""
LEAST_BYTES = 64 * 1024 * 1024
"""From this size on a pushed pack is given out as it is."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A pushed pack; sizes are bytes."""

    mpack_id: str
    size: int
    object_lengths: list[int]
    """Raw lengths of its objects, in no order."""


def whole_pack(session: Session, repository_id: UUID, contents: Difference) -> Whole | None:
    """A live, indexed pack with exactly these entities, of at least LEAST_BYTES; None: there is none."""
    wanted = {
        *((int(Kind.OBJECT), item) for item in contents.objects),
        *((int(Kind.SNAPSHOT), item) for item in contents.snapshots),
        *((int(Kind.COMMIT), item) for item in contents.commits),
    }
    alike = session.execute(
        select(Mpack.mpack_id, Mpack.size)
        .join(MpackBlock, (MpackBlock.repository_id == Mpack.repository_id) & (MpackBlock.mpack_id == Mpack.mpack_id))
        .where(
            Mpack.repository_id == repository_id,
            Mpack.state == "live",
            Mpack.indexed_at.is_not(None),
            Mpack.size >= LEAST_BYTES,
        )
        .group_by(Mpack.mpack_id, Mpack.size)
        .having(func.sum(MpackBlock.entries) == len(wanted))
    ).all()
    for mpack_id, size in alike:
        entries = session.execute(
            select(MpackIndex.kind, MpackIndex.entity_id, MpackIndex.raw_length).where(
                MpackIndex.repository_id == repository_id, MpackIndex.mpack_id == mpack_id
            )
        ).all()
        if {(kind, entity_id) for kind, entity_id, _ in entries} == wanted:
            return Whole(mpack_id, size, [length for kind, _, length in entries if kind == Kind.OBJECT])
    return None


def find_pack(services: Services, session: Session, repository_id: UUID, mpack_id: str) -> Place | None:
    """Where a pack that clones get lies: a live one in the archive, or else in the cache; None: in neither.

    Of the archive the row is believed, for it is written after the bytes; the cache may have lost any of them.
    """
    if is_live(session, repository_id, mpack_id):
        return services.archive, archive_key(repository_id, mpack_id)
    key = cache_key(repository_id, mpack_id)
    try:
        services.cache.head(key)
    except NotFound:
        return None
    return services.cache, key


def is_live(session: Session, repository_id: UUID, mpack_id: str) -> bool:
    """Whether the archive's pack may be given out: it is none that was staged only, folded, or set aside."""
    live = exists().where(Mpack.repository_id == repository_id, Mpack.mpack_id == mpack_id, Mpack.state == "live")
    return bool(session.scalar(select(live)))
