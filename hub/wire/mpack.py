"""Part B: the mpack transport of our own client. A pack goes to the object store and comes from there."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

from flask import Blueprint, Response, request

from hub.auth import Right
from hub.fetch import fetch_mpack
from hub.keys import mpack_id_of, mpack_key
from hub.manifest import check_id
from hub.mending import mend_pack
from hub.pack_upload import (
    INLINE_BYTES,
    InParts,
    abort_upload,
    discard_upload,
    next_upload,
    open_inline,
    open_upload,
    too_large,
)
from hub.push import Lease, Receipt, check_place, read_incoming, receive
from hub.pushes import push_status, read_jobs, repeated_push
from hub.records import check_branch
from hub.wire.codec import MPACK, answer, body, read_map, take_count, take_flag, take_ids, take_text
from hub.wire.context import hub, opened
from hub.wire.signed import download_from, part_to, upload_to
from storage import Upload

wire = Blueprint("mpack", __name__, url_prefix="/<owner>/<slug>")


@wire.post("/push/mpack/presign")
def presign(owner: str, slug: str) -> Response:
    """What is to be sent of a pack, and where to; no upload when all of it is here already.

    Limits are refused here, before a byte moves. Asking again is how an interrupted upload goes on.
    """
    repository = opened(owner, slug, Right.WRITE)
    data = read_map()
    mpack_id = check_id(data.get("mpack_id"), "mpack_id")
    size = take_count(data, "size")
    branch = check_branch(take_text(data, "branch"))
    head = check_id(data.get("head"), "head")
    lease = _lease(data)
    limit = hub().services.settings.max_mpack_bytes
    if size > limit:
        raise too_large(size, limit)
    services, repository_id = hub().services, repository.repository_id
    if repeated_push(services, repository_id, branch=branch, head=head, mpack_id=mpack_id) is None:
        with services.sessions() as session:
            check_place(session, repository_id, branch, head, lease)
    upload = _upload(repository_id, mpack_id, size)
    return answer({"mpack_key": mpack_key(mpack_id), "upload": upload})


def _upload(repository_id: UUID, mpack_id: str, size: int) -> dict[str, Any] | None:
    step = next_upload(hub().services, repository_id, mpack_id, size)
    if step is None:
        return None
    if isinstance(step, InParts):
        links = [part_to(repository_id, mpack_id, step.upload_id, part.number, part.size) for part in step.missing]
        return {
            "upload_id": step.upload_id,
            "part_size": step.part_size,
            "arrived": step.arrived,
            "parts": [
                {"number": part.number, "offset": part.offset, "size": part.size, **_link(link)}
                for part, link in zip(step.missing, links, strict=True)
            ],
            "expires_at": links[0].expires_at.isoformat(),
        }
    link = upload_to(repository_id, mpack_id, size)
    return {**_link(link), "expires_at": link.expires_at.isoformat()}


def _link(link: Upload) -> dict[str, Any]:
    return {"method": link.method, "url": link.url, "headers": link.headers}


@wire.post("/push/mpack/abort")
def abort(owner: str, slug: str) -> Response:
    """Drop what has arrived of a pack that nobody will push."""
    repository = opened(owner, slug, Right.WRITE)
    abort_upload(hub().services, repository.repository_id, mpack_id_of(read_map().get("mpack_key")))
    return answer({"ok": True})


@wire.post("/push/mpack")
def push(owner: str, slug: str) -> Response:
    """Verify the pack, uploaded before or in the body, and move the branch.

    A repeat of a finished push answers the same again.
    """
    repository = opened(owner, slug, Right.WRITE)
    services, repository_id = hub().services, repository.repository_id
    inline = request.mimetype == MPACK
    data = _read_query() if inline else read_map()
    mpack_id = mpack_id_of(data.get("mpack_key"))
    branch = check_branch(take_text(data, "branch"))
    head = check_id(data.get("head"), "head")
    force, lease = take_flag(data, "force"), _lease(data)
    receipt = repeated_push(services, repository_id, branch=branch, head=head, mpack_id=mpack_id)
    if receipt is None:
        with tempfile.TemporaryFile() as file:
            if inline:
                found = open_inline(services, mpack_id, _inline_body(), file)
            else:
                found = open_upload(services, repository_id, mpack_id, file)
            incoming = read_incoming(
                found.pack, file, mpack_id=mpack_id, size=found.size, branch=branch, force=force, lease=lease, head=head
            )
            incoming = replace(incoming, upload_etag=found.upload_etag)
            if mend_pack(services, hub().work, repository_id, incoming):
                receipt = repeated_push(services, repository_id, branch=branch, head=head, mpack_id=mpack_id)
            if receipt is None:
                receipt = receive(services, hub().work, repository.pusher, repository_id, incoming)
        if not inline:
            discard_upload(services, repository_id, mpack_id)
    return answer(_receipt(receipt))


def _read_query() -> dict[str, Any]:
    """The fields of a push whose body is the pack; `expected_head` empty: the branch must not exist."""
    data: dict[str, Any] = dict(request.args)
    if "force" in data:
        data["force"] = {"true": True, "false": False}.get(data["force"])
    if data.get("expected_head") == "":
        data["expected_head"] = None
    return data


def _inline_body() -> Iterator[bytes]:
    limit = min(INLINE_BYTES, hub().services.settings.max_mpack_bytes)
    stream = body(limit, "ask push/mpack/presign where a larger pack goes.")
    while chunk := stream.read():
        yield chunk


@wire.get("/pushes/<uuid:push_id>")
def status(owner: str, slug: str, push_id: UUID) -> Response:
    """Where a push stands: received, indexed, prebuilt, or failed with the job's reason."""
    repository = opened(owner, slug, Right.READ)
    with hub().services.sessions() as session:
        return answer(push_status(session, repository.repository_id, push_id))


@wire.post("/fetch/mpack")
def fetch(owner: str, slug: str) -> Response:
    """A pack with all that `want` reaches and `have` doesn't; no `want` means every branch."""
    repository = opened(owner, slug, Right.READ)
    data = read_map()
    want, have = take_ids(data, "want"), take_ids(data, "have")
    fetched = fetch_mpack(hub().services, hub().work, repository.repository_id, want, have)
    said: dict[str, Any] = {
        "mpack_id": fetched.mpack_id,
        "url": None,
        "size": fetched.size,
        "tips": fetched.tips,
        "default_branch": repository.default_branch or "main",
        "expires_at": None,
    }
    if fetched.mpack_id is not None and fetched.place is not None:
        where = download_from(repository.repository_id, fetched.mpack_id, fetched.size, fetched.place)
        said |= {"url": where.url, "expires_at": where.expires_at.isoformat()}
    return answer(said)


def _lease(data: dict[str, Any]) -> Lease | None:
    if "expected_head" not in data:
        return None
    expected = data["expected_head"]
    return Lease(None if expected is None else check_id(expected, "expected_head"))


def _receipt(receipt: Receipt) -> dict[str, Any]:
    with hub().services.sessions() as session:
        jobs = read_jobs(session, receipt.job_ids)
    return {
        "ok": True,
        "branch_heads": receipt.branch_heads,
        "push_id": str(receipt.push_id),
        "jobs": jobs,
    }
