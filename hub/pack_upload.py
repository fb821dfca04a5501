"""A pack on its way in: asked for, sent whole or in parts, and verified before the push that needs it.

Nothing about it is remembered but what lies in the store, under a key that names the pack by its digest. So whoever
asks again, after a crash too, learns what is still missing, and two clients that send the same pack help each other.
What lies there counts for nothing until `open_upload` has verified it. It goes when its pack is taken in or its bytes
are wrong; whatever else a push is refused for, they stay for the next try, until gc removes them after a day.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import BinaryIO
from uuid import UUID

from sqlalchemy import select

from hub.errors import HubError, Invalid, TooLarge
from hub.keys import archive_key, staging_key
from hub.models import Mpack
from hub.pack.format import Limits
from hub.pack.reader import PackReader
from hub.pack.verify import verify_pack
from hub.services import Services
from storage import NotFound, Part, StorageError, Store
from storage.store import PARTS_MAX

MIB = 1024 * 1024
INLINE_BYTES = 8 * MIB
"""A pack up to this size may come with the push itself: less than what it costs to bring it back from the store."""
PARTS_TOLD = 200
"""Missing parts of one answer; whoever has sent them asks again."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MissingPart:
    """A part that has not arrived: `size` bytes of the pack from `offset` on."""

    number: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class InParts:
    """An unfinished upload in parts. `missing`: the first PARTS_TOLD; `arrived`: numbers of those that are there."""

    upload_id: str
    part_size: int
    arrived: list[int]
    missing: list[MissingPart]


class Whole:
    """The pack is to be sent in one request."""


def next_upload(services: Services, repository_id: UUID, mpack_id: str, size: int) -> InParts | Whole | None:
    """What is to be sent next of a pack of `size` bytes; None: nothing, all of it is here.

    An upload whose last part has arrived is completed. Raises storage's errors.
    """
    archive, key = services.archive, staging_key(repository_id, mpack_id)
    if stored_pack(services, repository_id, mpack_id) or _size(archive, key) == size:
        return None
    if size <= services.settings.multipart_bytes:
        return Whole()
    upload_id, there = _open_parts(archive, key)
    part_size = max(services.settings.part_bytes, -(-size // PARTS_MAX // MIB) * MIB)
    wanted = [
        MissingPart(number, offset, min(part_size, size - offset))
        for number, offset in enumerate(range(0, size, part_size), start=1)
    ]
    # SeaweedFS goes on listing a part that was replaced, for one that was sent with another size.
    sizes = {part.number: part.size for part in wanted}
    arrived = {part.number: part for part in there if part.size == sizes.get(part.number)}
    missing = [part for part in wanted if part.number not in arrived]
    if not missing:
        _complete(archive, key, upload_id, [arrived[part.number] for part in wanted], size)
        return None
    return InParts(upload_id, part_size, sorted(arrived), missing[:PARTS_TOLD])


def _open_parts(archive: Store, key: str) -> tuple[str, list[Part]]:
    """The upload to go on with and its parts: the oldest unfinished one, so that all clients choose the same."""
    found = [upload for upload in archive.list_uploads(key) if upload.key == key]
    for upload in sorted(found, key=lambda item: (item.created_at, item.upload_id)):
        try:
            return upload.upload_id, list(archive.list_parts(key, upload.upload_id))
        except NotFound:
            continue  # completed or aborted since it was listed
    return archive.create_upload(key), []


def _complete(archive: Store, key: str, upload_id: str, parts: list[Part], size: int) -> None:
    try:
        archive.complete_upload(key, upload_id, parts)
    except NotFound:
        # Another client of the same pack was quicker; or it was aborted, and must be sent again.
        if _size(archive, key) != size:
            raise Invalid("mpack_id", "its upload was aborted meanwhile; push again.") from None


def _size(archive: Store, key: str) -> int | None:
    try:
        return archive.head(key).size
    except NotFound:
        return None


def stored_pack(services: Services, repository_id: UUID, mpack_id: str) -> bool:
    """Whether the repository has this pack, so that nothing needs to be uploaded."""
    with services.sessions() as session:
        state = session.scalars(
            select(Mpack.state).where(Mpack.repository_id == repository_id, Mpack.mpack_id == mpack_id)
        ).one_or_none()
    return state in ("live", "staged")


@dataclass(frozen=True, slots=True)
class Opened:
    """A verified pack: open, and its size in bytes.

    `upload_etag`: the version of the upload that was verified; None for a pack that comes from the archive.
    """

    pack: PackReader
    size: int
    upload_etag: str | None


def open_upload(services: Services, repository_id: UUID, mpack_id: str, file: BinaryIO) -> Opened:
    """Bring the uploaded pack into `file` and verify it whole. A wrong one is removed.

    A pack that the repository has already is read from the archive. Raises Invalid when nothing was uploaded or the
    pack is not what it claims, TooLarge for the limits, and storage's errors.
    """
    limit = services.settings.max_mpack_bytes
    try:
        found = _download(services.archive, staging_key(repository_id, mpack_id), file, limit)
        etag = None if found is None else found[1]
        if found is None and stored_pack(services, repository_id, mpack_id):
            found = _download(services.archive, archive_key(repository_id, mpack_id), file, limit)
        if found is None:
            raise Invalid(
                "mpack_key", "names a pack that was not uploaded whole; ask push/mpack/presign what is missing."
            )
        return Opened(_verified(services, file, mpack_id), found[0], etag)
    except HubError:
        discard_upload(services, repository_id, mpack_id)
        raise


def open_inline(services: Services, mpack_id: str, body: Iterable[bytes], file: BinaryIO) -> Opened:
    """Write a pack that came with the push into `file` and verify it whole. Raises Invalid and TooLarge."""
    file.writelines(body)
    size = file.tell()
    return Opened(_verified(services, file, mpack_id), size, None)


def _verified(services: Services, file: BinaryIO, mpack_id: str) -> PackReader:
    settings = services.settings
    limits = Limits(max_file=settings.max_mpack_bytes, max_object=settings.max_object_bytes)
    return verify_pack(file, limits=limits, expect_id=mpack_id)


def too_large(size: int, limit: int) -> TooLarge:
    """The refusal of a pack of `size` bytes."""
    return TooLarge(f"The pack has {size} bytes, allowed are {limit}; push in smaller steps.")


def discard_upload(services: Services, repository_id: UUID, mpack_id: str) -> None:
    """Remove an upload that is not needed any more. What can't be removed now is garbage, no error."""
    try:
        services.archive.delete(staging_key(repository_id, mpack_id))
    except StorageError as error:
        log.warning("an upload stays in staging: %s", error)


def abort_upload(services: Services, repository_id: UUID, mpack_id: str) -> None:
    """Drop what has arrived of a pack, whole or in parts. Raises storage's errors."""
    key = staging_key(repository_id, mpack_id)
    for upload in services.archive.list_uploads(key):
        if upload.key == key:
            services.archive.abort_upload(key, upload.upload_id)
    services.archive.delete(key)


def abort_old_uploads(archive: Store, before: datetime) -> int:
    """Abort the uploads in parts that were begun before then and never completed, by clients or by the hub itself.

    How many they were. For gc.
    """
    old = [upload for upload in archive.list_uploads() if upload.created_at < before]
    for upload in old:
        archive.abort_upload(upload.key, upload.upload_id)
    return len(old)


def _download(store: Store, key: str, file: BinaryIO, limit: int) -> tuple[int, str] | None:
    """Bytes written to `file` and the version that they are of; None when the store has no such key."""
    file.seek(0)
    file.truncate()
    try:
        with store.get(key) as body:
            if body.size > limit:
                raise too_large(body.size, limit)
            file.writelines(body)
            return body.size, body.etag
    except NotFound:
        return None
