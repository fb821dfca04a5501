"""Around a push of Part B: its repeats, and where it stands."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.orm import Session

from hub.archive import is_set_aside
from hub.errors import Missing
from hub.fetch import BROKEN, reasons_of
from hub.models import Mpack, Push
from hub.models.history import branch_heads, is_ancestor
from hub.models.push import find_push
from hub.prebuild import cached_mpack, live_tips
from hub.push import Receipt
from hub.services import Services
from hub.work import INDEX, PREBUILD
from tasks.errors import JobNotFound
from tasks.job import Job
from tasks.queue import get_job


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

    Once its packs are indexed and the clone cache is at all tips, a push is prebuilt, whatever became of its own jobs:
    a later one has done their work.

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
    awaited = [job for job in jobs if job.task in (INDEX, PREBUILD)]
    broken = [job for job in awaited if job.status in BROKEN]
    builds = [job for job in awaited if job.task == PREBUILD]
    said: dict[str, Any] = {
        "push_id": str(push_id),
        "status": "received",
        "jobs": job_list(jobs),
        "why": [reason for job in awaited if job.status != "succeeded" for reason in reasons_of(session, job)],
    }
    if waiting is None and cached_mpack(session, repository_id, live_tips(session, repository_id)):
        return {**said, "status": "prebuilt"}
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
