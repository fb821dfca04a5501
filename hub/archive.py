"""Verified packs on their way into the archive, also in the place of one whose bytes went bad there."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import BinaryIO
from uuid import UUID

from sqlalchemy import exists, select, update
from sqlalchemy.orm import Session

from hub.keys import archive_key, staging_key
from hub.models import Mpack
from hub.services import Services
from storage import AlreadyExists, NotFound, Store

SET_ASIDE = "quarantined"


def store_pack(
    services: Services, repository_id: UUID, mpack_id: str, file: BinaryIO, upload_etag: str | None = None
) -> None:
    """Put a verified pack into the archive, under its digest. Raises storage's errors.

    What lies there already is the same pack, unless it was set aside: then its bytes are not, and are replaced.
    `upload_etag`: the version of its upload that was verified; the store copies that one by itself.
    """
    archive, key = services.archive, archive_key(repository_id, mpack_id)
    with services.sessions() as session:
        fresh = not is_set_aside(session, repository_id, [mpack_id])
    if upload_etag is not None:
        # NotFound: whoever holds the URL has put other bytes there since, or another push has taken the upload in.
        with suppress(NotFound):
            if not (fresh and _is_there(archive, key)):
                archive.copy(staging_key(repository_id, mpack_id), key, etag=upload_etag)
            return
    file.seek(0)
    with suppress(AlreadyExists):
        archive.put(key, file, if_absent=fresh, sha256=mpack_id)


def _is_there(archive: Store, key: str) -> bool:
    try:
        archive.head(key)
    except NotFound:
        return False
    return True


def is_set_aside(session: Session, repository_id: UUID, mpack_ids: Sequence[str]) -> bool:
    """Whether the stored bytes of one of these packs were found to be wrong."""
    found = exists().where(
        Mpack.repository_id == repository_id, Mpack.mpack_id.in_(mpack_ids), Mpack.state == SET_ASIDE
    )
    return bool(session.scalar(select(found)))


def take_back(session: Session, repository_id: UUID, mpack_id: str, state: str) -> None:
    """A pack that was set aside has this state again: `store_pack` has replaced its bytes."""
    session.execute(
        update(Mpack)
        .where(Mpack.repository_id == repository_id, Mpack.mpack_id == mpack_id, Mpack.state == SET_ASIDE)
        .values(state=state)
    )
