"""Packs through the hub itself, for where the store hands out no URL that clients can reach."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator

from flask import Blueprint, Response, request
from werkzeug.exceptions import RequestedRangeNotSatisfiable

from hub.errors import Invalid, Missing
from hub.keys import staging_key
from hub.whole import find_pack
from hub.wire.codec import CHUNK_BYTES, answer, body
from hub.wire.context import hub
from hub.wire.signed import read_download, read_part, read_upload
from storage import DigestMismatch, NotFound, Store
from storage.store import read_up_to

wire = Blueprint("transfer", __name__, url_prefix="/-")
RANGE = re.compile(r"bytes=([0-9]{1,19})-([0-9]{0,19})")
PIECE_BYTES = 4 * 1024 * 1024


@wire.put("/uploads/<token>")
def upload(token: str) -> Response:
    """Take the pack that this URL is for. The URL is the permission; the bytes are verified at the push."""
    repository_id, mpack_id, size = read_upload(token)
    stream = body(size)
    with tempfile.TemporaryFile() as file:
        while chunk := stream.read(CHUNK_BYTES):
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


@wire.get("/downloads/<token>")
def download(token: str) -> Response:
    """Send the pack that this URL is for, whole or from a byte on."""
    repository_id, mpack_id = read_download(token)
    with hub().services.sessions() as session:
        place = find_pack(hub().services, session, repository_id, mpack_id)
    if place is None:
        raise Missing("This pack is not here any more; ask for a new URL.")
    store, key = place
    size = store.head(key).size
    headers = {"Accept-Ranges": "bytes", "Content-Length": str(size), "ETag": f'"{mpack_id}"'}
    asked = RANGE.fullmatch(request.headers.get("Range", ""))
    if asked is None:
        # Without a Range, or with one of a form that is not served, the whole is the answer.
        return Response(_whole(store, key), 200, headers, content_type="application/octet-stream")
    first, last = int(asked[1]), min(int(asked[2] or size), size - 1)
    if first > last:
        raise RequestedRangeNotSatisfiable(size, description=f"The pack has {size} bytes; ask for bytes within it.")
    headers["Content-Length"] = str(last - first + 1)
    headers["Content-Range"] = f"bytes {first}-{last}/{size}"
    return Response(_pieces(store, key, first, last), 206, headers, content_type="application/octet-stream")


def _whole(store: Store, key: str) -> Iterator[bytes]:
    with store.get(key) as found:
        yield from found


def _pieces(store: Store, key: str, first: int, last: int) -> Iterator[bytes]:
    for start in range(first, last + 1, PIECE_BYTES):
        yield store.get_range(key, start, min(PIECE_BYTES, last + 1 - start))
