"""Around a push of Part B: its upload, its repeats, and where it stands."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.orm import Session

from hub.archive import is_set_aside
from hub.errors import HubError, Invalid, Missing, TooLarge
from hub.fetch import BROKEN
from hub.keys import archive_key, staging_key
from hub.models import Mpack, Push
from hub.models.history import branch_heads, is_ancestor
from hub.models.push import find_push
from hub.pack.format import Limits
from hub.pack.reader import PackReader
from hub.pack.verify import verify_pack
from hub.push import Receipt
from hub.services import Services
from hub.work import INDEX
from storage import NotFound, StorageError, Store
from tasks.errors import JobNotFound
from tasks.job import Job
from tasks.queue import get_job

log = logging.getLogger(__name__)


def stored_upload(services: Services, repository_id: UUID, mpack_id: str) -> bool:
    """Whether the repository has this pack, so that nothing needs to be uploaded."""
    with services.sessions() as session:
        state = session.scalars(
            select(Mpack.state).where(Mpack.repository_id == repository_id, Mpack.mpack_id == mpack_id)
        ).one_or_none()
    return state in ("live", "staged")


def open_upload(services: Services, repository_id: UUID, mpack_id: str, file: BinaryIO) -> tuple[PackReader, int]:
    """Bring the uploaded pack into `file` and verify it whole; the open pack and its size in bytes.

    A pack that the repository has already is read from the archive. Raises Invalid when nothing was uploaded or the
    pack is not what it claims, TooLarge for the limits, and storage's errors.
    """
    settings = services.settings
    size = _download(services.archive, staging_key(repository_id, mpack_id), file, settings.max_mpack_bytes)
    if size is None and stored_upload(services, repository_id, mpack_id):
        size = _download(services.archive, archive_key(repository_id, mpack_id), file, settings.max_mpack_bytes)
    if size is None:
        raise Invalid("mpack_key", "names a pack that was not uploaded; put it to the URL of push/mpack/presign first.")
    limits = Limits(max_file=settings.max_mpack_bytes, max_object=settings.max_object_bytes)
    return verify_pack(file, limits=limits, expect_id=mpack_id), size


@contextmanager
def using_upload(services: Services, repository_id: UUID, mpack_id: str) -> Iterator[None]:
    """Remove the upload once the push is accepted or refused. When it can be sent again as it is, the upload stays."""
    try:
        yield
    except HubError:
        _discard_upload(services, repository_id, mpack_id)
        raise
    _discard_upload(services, repository_id, mpack_id)


def _discard_upload(services: Services, repository_id: UUID, mpack_id: str) -> None:
    """Remove an upload that is not needed any more. What can't be removed now is garbage, no error."""
    try:
        services.archive.delete(staging_key(repository_id, mpack_id))
    except StorageError as error:
        log.warning("an upload stays in staging: %s", error)


def repeated_push(services: Services, repository_id: UUID, *, branch: str, head: str, mpack_id: str) -> Receipt | None:
    """The receipt of the same push when it was accepted before and still stands; None when it must be done.

    It stands while the branch's head is the pushed one or follows from it, and its packs are sound.
    """
    with services.sessions() as session:
        push = find_push(session, repository_id, branch=branch, head=head, mpack_id=mpack_id)
        heads = branch_heads(session, repository_id)
        if push is None or branch not in heads or not is_ancestor(session, repository_id, head, [heads[branch]]):
            return None
        if is_set_aside(session, repository_id, push.mpack_ids):
            return None
        return Receipt(push.push_id, heads, push.job_ids)


def push_status(session: Session, repository_id: UUID, push_id: UUID) -> dict[str, Any]:
    """Where a push stands: its own packs and jobs, each job as it is or as the one that took its place.

    Raises Missing for a push that this repository does not have.
    """
    push = session.get(Push, push_id)
    if push is None or push.repository_id != repository_id:
        raise Missing("There is no such push in this repository.")
    jobs = _jobs(session, push.job_ids)
    waiting = session.scalars(
        select(Mpack.mpack_id).where(
            Mpack.repository_id == repository_id, Mpack.mpack_id.in_(push.mpack_ids), Mpack.indexed_at.is_(None)
        )
    ).first()
    broken = [job for job in jobs if job.status in BROKEN]
    builds = [job for job in jobs if job.task != INDEX]
    said: dict[str, Any] = {"push_id": str(push_id), "status": "received", "jobs": job_list(jobs)}
    if broken:
        reason = f"{broken[0].task} has {broken[0].status}: {broken[0].last_error_code}"
        return {**said, "status": "failed", "reason": reason}
    if waiting is None:
        said["status"] = "prebuilt" if all(job.status == "succeeded" for job in builds) else "indexed"
    return said


def read_jobs(session: Session, job_ids: Sequence[UUID]) -> list[dict[str, str]]:
    """The jobs as the wire shows them; those that retention has removed are left out."""
    return job_list(_jobs(session, job_ids))


def job_list(jobs: Sequence[Job]) -> list[dict[str, str]]:
    """Jobs as the wire shows them."""
    return [{"id": str(job.job_id), "task": job.task, "status": job.status} for job in jobs]


def _jobs(session: Session, job_ids: Sequence[UUID]) -> list[Job]:
    found: list[Job] = []
    for job_id in job_ids:
        with suppress(JobNotFound):
            job = get_job(session, job_id)
            while job.superseded_by is not None:
                job = get_job(session, job.superseded_by)
            found.append(job)
    return found


def _download(store: Store, key: str, file: BinaryIO, limit: int) -> int | None:
    """Bytes written to `file`; None when the store has no such key."""
    file.seek(0)
    file.truncate()
    try:
        with store.get(key) as body:
            if body.size > limit:
                raise TooLarge(f"The pack has {body.size} bytes, allowed are {limit}; push in smaller steps.")
            file.writelines(body)
            return body.size
    except NotFound:
        return None
