"""The packs of the archive: stored, read back whole, and set aside when their bytes went bad there."""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import BinaryIO
from uuid import UUID

from sqlalchemy import exists, func, select, text, update
from sqlalchemy.orm import Session

from hub.errors import CorruptMpack
from hub.keys import archive_key, staging_key
from hub.models import Mpack
from hub.models.doomed import spare
from hub.services import Services
from storage import AlreadyExists, NotFound, Store, Unavailable

log = logging.getLogger(__name__)

SET_ASIDE = "quarantined"
DOOM_KEPT = timedelta(days=7)
"""How long it is remembered that bytes were deleted; a push that takes longer must begin again."""


def store_pack(
    services: Services, repository_id: UUID, mpack_id: str, file: BinaryIO, upload_etag: str | None = None
) -> None:
    """Put a verified pack into the archive, under its digest.

    What lies there already is taken for the same pack. `upload_etag`: the version of its upload that was verified; the
    store copies that one by itself. The file may be read by others meanwhile. Raises storage's errors.
    """
    archive, key = services.archive, archive_key(repository_id, mpack_id)
    if upload_etag is not None:
        # NotFound: whoever holds the URL has put other bytes there since, or another push has taken the upload in.
        with suppress(NotFound):
            if not _is_there(archive, key):
                archive.copy(staging_key(repository_id, mpack_id), key, etag=upload_etag)
            return
    with suppress(AlreadyExists):
        archive.put(key, _FromStart(file), if_absent=True, sha256=mpack_id)


class _FromStart:
    """A file as a store reads it, wherever others stand in it meanwhile."""

    def __init__(self, file: BinaryIO) -> None:
        file.flush()
        self._fd = file.fileno()
        self._at = 0

    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes; none at the end only."""
        chunk = os.pread(self._fd, size, self._at)
        self._at += len(chunk)
        return chunk


def _is_there(archive: Store, key: str) -> bool:
    try:
        archive.head(key)
    except NotFound:
        return False
    return True


def secure_pack(
    services: Services, session: Session, repository_id: UUID, mpack_id: str, file: BinaryIO, begun_at: datetime
) -> None:
    """Make sure that the bytes which `store_pack` left or found are right, and stay.

    For the transaction that writes the pack's row, which holds the repository's lock: gc deletes under the same lock.
    `begun_at` is an `instant` before `store_pack`. Bytes that gc has marked since may be gone, those of a pack that was
    set aside are wrong: both are stored again. Raises storage's errors, Unavailable also when a mark could be
    forgotten by now.
    """
    now: datetime = session.execute(select(func.now())).scalar_one()
    if now - begun_at > DOOM_KEPT / 2:
        raise Unavailable(mpack_id, "the push has taken too long; it must begin again")
    key = archive_key(repository_id, mpack_id)
    if spare(session, "archive", key) or is_set_aside(session, repository_id, [mpack_id]):
        services.archive.put(key, _FromStart(file), sha256=mpack_id)


def is_set_aside(session: Session, repository_id: UUID, mpack_ids: Sequence[str]) -> bool:
    """Whether the stored bytes of one of these packs were found to be wrong."""
    found = exists().where(
        Mpack.repository_id == repository_id, Mpack.mpack_id.in_(mpack_ids), Mpack.state == SET_ASIDE
    )
    return bool(session.scalar(select(found)))


def take_back(session: Session, repository_id: UUID, mpack_id: str, state: str) -> None:
    """A pack that was set aside has this state again: `secure_pack` has replaced its bytes."""
    session.execute(
        update(Mpack)
        .where(Mpack.repository_id == repository_id, Mpack.mpack_id == mpack_id, Mpack.state == SET_ASIDE)
        .values(state=state)
    )


def download_pack(services: Services, repository_id: UUID, mpack_id: str, file: BinaryIO) -> None:
    """Write the stored pack to `file`, checked against its digest. Raises CorruptMpack and storage's errors."""
    digest = hashlib.sha256()
    with services.archive.get(archive_key(repository_id, mpack_id)) as body:
        for chunk in body:
            digest.update(chunk)
            file.write(chunk)
    if digest.hexdigest() != mpack_id:
        raise CorruptMpack(mpack_id, "its digest is not its id.")


def set_aside(services: Services, repository_id: UUID, mpack_id: str) -> None:
    """Mark a pack whose stored bytes are wrong, in a transaction of its own: its objects are no longer held."""
    with services.sessions.begin() as session:
        unindex(session, repository_id, mpack_id)
        session.execute(
            update(Mpack)
            .where(Mpack.repository_id == repository_id, Mpack.mpack_id == mpack_id)
            .values(state=SET_ASIDE)
        )
    log.error("pack %s of repository %s is damaged in the archive; it was set aside", mpack_id, repository_id)


def unindex(session: Session, repository_id: UUID, mpack_id: str) -> None:
    """Take the pack out of the index; its row keeps what it holds, and `mpack.index` can index it anew."""
    parameters = {"repository_id": repository_id, "mpack_id": bytes.fromhex(mpack_id)}
    session.execute(KEEP_IDS, parameters)
    session.execute(UNINDEX, parameters)


def set_aside_if_damaged(services: Services, repository_id: UUID, mpack_id: str) -> bool:
    """Read the whole pack again, and set it aside when that shows the same: a bad read is not a bad pack."""
    with tempfile.TemporaryFile() as file:
        try:
            download_pack(services, repository_id, mpack_id, file)
        except CorruptMpack:
            set_aside(services, repository_id, mpack_id)
            return True
    return False


def watched(services: Services, repository_id: UUID, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The chunks of an answer under way; a pack that is found damaged is set aside before the answer breaks off.

    Half an answer can't be taken back, but the next caller reads what is the matter, and a push of the pack mends it.
    """
    try:
        yield from chunks
    except CorruptMpack as error:
        set_aside_if_damaged(services, repository_id, error.mpack_id)
        raise


KEEP_IDS = text("""
UPDATE hub.mpack m
SET indexed_at = NULL, object_ids = coalesce(object_ids, ARRAY(
    SELECT entity_id FROM hub.mpack_index i
    WHERE i.repository_id = m.repository_id AND i.mpack_id = m.mpack_id AND i.kind = 1
))
WHERE repository_id = :repository_id AND mpack_id = :mpack_id
""")

UNINDEX = text("DELETE FROM hub.mpack_block WHERE repository_id = :repository_id AND mpack_id = :mpack_id")
