"""Packs, and the Muse client's large objects, through the hub itself: for where clients can't reach the store."""

from __future__ import annotations

import re
import tempfile
from uuid import UUID

from flask import Blueprint, Response, request
from werkzeug.exceptions import RequestedRangeNotSatisfiable

from hub.auth import still_may_write
from hub.errors import Invalid, Missing
from hub.keys import archive_key, cache_key, staging_key, upload_key
from hub.uploads import UPLOAD_BYTES
from hub.whole import is_live
from hub.wire.codec import CHUNK_BYTES, answer, body
from hub.wire.context import hub
from hub.wire.signed import CACHE, ENDED, read_download, read_object, read_part, read_upload
from hub.wire.stream import stream
from storage import Body, DigestMismatch, NotFound
from storage.store import read_up_to

wire = Blueprint("transfer", __name__, url_prefix="/-")
RANGE = re.compile(r"bytes=([0-9]{1,19})-([0-9]{0,19})")


@wire.put("/uploads/<token>")
def upload(token: str) -> Response:
    """Take the pack that this URL is for. The URL is the permission; the bytes are verified at the push."""
    repository_id, mpack_id, size = read_upload(token)
    sent = body(size)
    with tempfile.TemporaryFile() as file:
        while chunk := sent.read(CHUNK_BYTES):
            file.write(chunk)
        if file.tell() != size:
            raise Invalid("body", f"has {file.tell()} bytes, announced were {size}.")
        file.seek(0)
        try:
            hub().services.archive.put(staging_key(repository_id, mpack_id), file, sha256=mpack_id)
        except DigestMismatch:
            raise Invalid("body", "is not the announced pack: its SHA-256 is not the mpack_id.") from None
    return answer({"size": size})


@wire.put("/parts/<token>")
def part(token: str) -> Response:
    """Take the part of a pack that this URL is for. The URL is the permission; the bytes are verified at the push."""
    repository_id, mpack_id, upload_id, number, size = read_part(token)
    content = read_up_to(body(size), size)
    if len(content) != size:
        raise Invalid("body", f"has {len(content)} bytes, announced were {size}.")
    try:
        hub().services.archive.put_part(staging_key(repository_id, mpack_id), upload_id, number, content)
    except NotFound:
        raise Missing("This upload has ended; ask push/mpack/presign what is missing.") from None
    return answer({"size": size})


@wire.put("/objects/<token>")
def upload_object(token: str) -> Response:
    """Take the object that this URL is for, in pieces of 8 MiB as they come; none of it counts before its push."""
    repository_id, object_id, token_id = read_object(token)
    services = hub().services
    with services.sessions() as session:
        if not still_may_write(session, token_id, repository_id):
            raise Missing(ENDED)
    try:
        size = services.archive.put(upload_key(repository_id, object_id), body(UPLOAD_BYTES), sha256=object_id)
    except DigestMismatch:
        raise Invalid("body", "is not the announced object: its SHA-256 is not the id.") from None
    return answer({"size": size})


@wire.get("/downloads/<token>")
def download(token: str) -> Response:
    """Send the pack that this URL is for, whole or a range of it. A set-aside pack is not sent."""
    repository_id, mpack_id, size, role = read_download(token)
    asked = RANGE.fullmatch(request.headers.get("Range", ""))
    # Without a Range, or with one of a form that is not served, the whole is the answer.
    first, last = (int(asked[1]), min(int(asked[2] or size), size - 1)) if asked else (0, size - 1)
    if first > last:
        raise RequestedRangeNotSatisfiable(size, description=f"The pack has {size} bytes; ask for bytes within it.")
    headers = {"Accept-Ranges": "bytes", "ETag": f'"{mpack_id}"'}
    if asked:
        headers["Content-Range"] = f"bytes {first}-{last}/{size}"
    body = _open(repository_id, mpack_id, role, first, last)
    return stream(body, "application/octet-stream", status=206 if asked else 200, headers=headers)


def _open(repository_id: UUID, mpack_id: str, role: str, first: int, last: int) -> Body:
    services = hub().services
    try:
        if role == CACHE:
            return services.cache.open_range(cache_key(repository_id, mpack_id), first, last + 1 - first)
        with services.sessions() as session:
            live = is_live(session, repository_id, mpack_id)
        if live:
            return services.archive.open_range(archive_key(repository_id, mpack_id), first, last + 1 - first)
    except NotFound:
        pass
    raise Missing("This pack is not here any more; ask for a new URL.")
