"""Part B: the mpack transport of our own client. A pack goes to the object store and comes from there."""

from __future__ import annotations

import tempfile
from typing import Any
from uuid import UUID

from flask import Blueprint, Response

from hub.auth import Right
from hub.errors import TooLarge
from hub.fetch import fetch_mpack
from hub.keys import mpack_id_of, mpack_key
from hub.manifest import check_id
from hub.push import Lease, Receipt, read_incoming, receive
from hub.pushes import open_upload, push_status, read_jobs, repeated_push, stored_upload, using_upload
from hub.records import check_branch
from hub.wire.codec import answer, read_map, take_count, take_flag, take_ids, take_text
from hub.wire.context import hub, opened
from hub.wire.signed import download_from, upload_to

wire = Blueprint("mpack", __name__, url_prefix="/<owner>/<slug>")


@wire.post("/push/mpack/presign")
def presign(owner: str, slug: str) -> Response:
    """Where to put a pack; limits are refused here, before a byte moves. No upload when the pack is here already."""
    repository = opened(owner, slug, Right.WRITE)
    data = read_map()
    mpack_id = check_id(data.get("mpack_id"), "mpack_id")
    size = take_count(data, "size")
    check_branch(take_text(data, "branch"))
    check_id(data.get("head"), "head")
    limit = hub().services.settings.max_mpack_bytes
    if size > limit:
        raise TooLarge(f"The pack has {size} bytes, allowed are {limit}; push in smaller steps.")
    upload: dict[str, Any] | None = None
    if not stored_upload(hub().services, repository.repository_id, mpack_id):
        where = upload_to(repository.repository_id, mpack_id, size)
        upload = {
            "method": where.method,
            "url": where.url,
            "headers": where.headers,
            "expires_at": where.expires_at.isoformat(),
        }
    return answer({"mpack_key": mpack_key(mpack_id), "upload": upload})


@wire.post("/push/mpack")
def push(owner: str, slug: str) -> Response:
    """Verify the uploaded pack and move the branch. A repeat of a finished push answers the same again."""
    repository = opened(owner, slug, Right.WRITE)
    services = hub().services
    data = read_map()
    mpack_id = mpack_id_of(data.get("mpack_key"))
    branch = check_branch(take_text(data, "branch"))
    head = check_id(data.get("head"), "head")
    receipt = repeated_push(services, repository.repository_id, branch=branch, head=head, mpack_id=mpack_id)
    if receipt is None:
        with (
            using_upload(services, repository.repository_id, mpack_id),
            tempfile.TemporaryFile() as file,
        ):
            pack, size = open_upload(services, repository.repository_id, mpack_id, file)
            incoming = read_incoming(
                pack,
                file,
                mpack_id=mpack_id,
                size=size,
                branch=branch,
                force=take_flag(data, "force"),
                lease=_lease(data),
                head=head,
            )
            receipt = receive(services, hub().work, repository.pusher, repository.repository_id, incoming)
    return answer(_receipt(receipt))


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
    if fetched.mpack_id is not None:
        where = download_from(repository.repository_id, fetched.mpack_id)
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
