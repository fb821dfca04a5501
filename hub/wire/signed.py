"""The hub's own upload and download URLs, for where the store hands out none: signed, expiring, each for one pack, one
part of a pack, or one object.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from flask import request
from itsdangerous import BadSignature, URLSafeTimedSerializer

from hub.auth import Caller
from hub.errors import Missing
from hub.keys import staging_key, upload_key
from hub.settings import Settings
from hub.whole import Place
from hub.wire.context import hub
from storage import Upload

UPLOAD = "upload"
PART = "part"
OBJECT = "object"
DOWNLOAD = "stored-download"
ARCHIVE, CACHE = "archive", "cache"
ENDED = "This URL is not valid, or not any more; ask for a new one."


def upload_to(repository_id: UUID, mpack_id: str, size: int) -> Upload:
    """Where the client puts the pack: straight into the store where that can be presigned, else here."""
    services = hub().services
    expires = timedelta(seconds=services.settings.upload_seconds)
    if services.settings.presign:
        presigned = services.archive.presign_put(staging_key(repository_id, mpack_id), expires=expires)
        if presigned is not None:
            return presigned
    token = _serializer(services.settings, UPLOAD).dumps([str(repository_id), mpack_id, size])
    return Upload("PUT", f"{request.host_url}-/uploads/{token}", {}, datetime.now(UTC) + expires)


def part_to(repository_id: UUID, mpack_id: str, upload_id: str, number: int, size: int) -> Upload:
    """Where the client puts one part of a pack: straight into the store where that can be presigned, else here."""
    services = hub().services
    expires = timedelta(seconds=services.settings.upload_seconds)
    if services.settings.presign:
        key = staging_key(repository_id, mpack_id)
        presigned = services.archive.presign_part(key, upload_id, number, expires=expires)
        if presigned is not None:
            return presigned
    token = _serializer(services.settings, PART).dumps([str(repository_id), mpack_id, upload_id, number, size])
    return Upload("PUT", f"{request.host_url}-/parts/{token}", {}, datetime.now(UTC) + expires)


def object_to(repository_id: UUID, object_id: str, caller: Caller) -> Upload:
    """Where the Muse client puts an object: straight into the store where that can be presigned, else here.

    It is here for this caller: who may not write any more finds the URL ended.
    """
    services = hub().services
    expires = timedelta(seconds=services.settings.upload_seconds)
    if services.settings.presign:
        presigned = services.archive.presign_put(upload_key(repository_id, object_id), expires=expires)
        if presigned is not None:
            return presigned
    token = _serializer(services.settings, OBJECT).dumps([str(repository_id), object_id, str(caller.token_id)])
    return Upload("PUT", f"{request.host_url}-/objects/{token}", {}, datetime.now(UTC) + expires)


def download_from(repository_id: UUID, mpack_id: str, size: int, place: Place) -> Upload:
    """Where the client gets a pack of `size` bytes: straight from where it lies, else here."""
    services = hub().services
    store, key = place
    expires = timedelta(seconds=services.settings.download_seconds)
    if services.settings.presign:
        presigned = store.presign_get(key, expires=expires)
        if presigned is not None:
            return presigned
    # It says where the pack lies: a client comes many times with it, for a range each.
    role = CACHE if store is services.cache else ARCHIVE
    token = _serializer(services.settings, DOWNLOAD).dumps([str(repository_id), mpack_id, size, role])
    return Upload("GET", f"{request.host_url}-/downloads/{token}", {}, datetime.now(UTC) + expires)


def read_upload(token: str) -> tuple[UUID, str, int]:
    """(repository, pack, size) that an upload URL is for. Raises Missing for a forged or expired one."""
    settings = hub().services.settings
    repository_id, mpack_id, size = _load(token, UPLOAD, settings.upload_seconds)
    return UUID(repository_id), str(mpack_id), int(size)


def read_part(token: str) -> tuple[UUID, str, str, int, int]:
    """(repository, pack, upload, number, size) that a part's URL is for. Raises Missing for a forged or expired one."""
    settings = hub().services.settings
    repository_id, mpack_id, upload_id, number, size = _load(token, PART, settings.upload_seconds)
    return UUID(repository_id), str(mpack_id), str(upload_id), int(number), int(size)


def read_object(token: str) -> tuple[UUID, str, UUID]:
    """(repository, object, caller's token) of an object's upload URL. Raises Missing for a forged or expired one."""
    settings = hub().services.settings
    repository_id, object_id, token_id = _load(token, OBJECT, settings.upload_seconds)
    return UUID(repository_id), str(object_id), UUID(token_id)


def read_download(token: str) -> tuple[UUID, str, int, str]:
    """(repository, pack, size, role of its store) of a download URL. Raises Missing for a forged or expired one."""
    settings = hub().services.settings
    repository_id, mpack_id, size, role = _load(token, DOWNLOAD, settings.download_seconds)
    return UUID(repository_id), str(mpack_id), int(size), str(role)


def _serializer(settings: Settings, purpose: str) -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(settings.secret_key, salt=f"packhouse.{purpose}")


def _load(token: str, purpose: str, seconds: int) -> list[Any]:
    settings = hub().services.settings
    try:
        loaded: list[Any] = _serializer(settings, purpose).loads(token, max_age=seconds)
    except BadSignature:
        raise Missing(ENDED) from None
    return loaded
