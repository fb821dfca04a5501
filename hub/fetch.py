"""What a fetch gets: the prebuilt pack, one built for it, or the reason why it must wait."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import NoReturn
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from hub.archive import set_aside_if_damaged
from hub.build import build_pack
from hub.cached import store_cached
from hub.difference import difference, known_commits
from hub.errors import CorruptMpack, FetchNotIndexed, NotReady, WorkFailed
from hub.keys import cache_key, mpack_key
from hub.models import Mpack
from hub.models.history import branch_heads, generations
from hub.prebuild import cached_mpack
from hub.services import Services
from hub.whole import Place, find_pack
from hub.work import INDEX, PREBUILD, Work
from tasks.errors import error_code
from tasks.job import Job
from tasks.queue import list_jobs
from tasks.why import why

RETRY_SECONDS = 1
BROKEN = ("failed", "quarantined")
"""How a job ends that will never do its work."""
JOBS_SEEN = 100
"""Ended jobs that are looked through for the one that explains a gap."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A pack, the store and key it lies under, and the branches when it was answered. No pack: nothing to send."""

    mpack_id: str | None
    size: int
    tips: dict[str, str]
    place: Place | None = None


def fetch_mpack(services: Services, work: Work, repository_id: UUID, want: list[str], have: list[str]) -> Fetched:
    """The pack of all that `want` reaches and `have` doesn't; no `want` means all branches.

    Raises Missing for an unknown want, NotReady while the index or the prebuilt pack is under way (a missing one is
    queued), WorkFailed when a job it needs has failed for good.
    """
    with services.sessions() as session:
        heads = branch_heads(session, repository_id)
        wanted = known_commits(session, repository_id, want) if want else sorted(set(heads.values()))
        if not wanted:
            return Fetched(None, 0, {})
        # Of commits that this repository does not know, a client may have any number: to it they say nothing.
        have = list(generations(session, repository_id, sorted(set(have)))) if have else []
        if not have:
            hit = cached_mpack(session, repository_id, wanted)
            place = find_pack(services, session, repository_id, hit[0]) if hit else None
            if hit and place:
                return Fetched(*hit, heads, place)
            if set(wanted) == set(heads.values()):
                _wait(services, work, session, repository_id, gap=False)
        try:
            return _build(services, session, repository_id, wanted, have, heads)
        except FetchNotIndexed:
            _wait(services, work, session, repository_id, gap=True)
        except CorruptMpack as error:
            session.rollback()
            set_aside_if_damaged(services, repository_id, error.mpack_id)
            _wait(services, work, session, repository_id, gap=True)


def _build(
    services: Services, session: Session, repository_id: UUID, want: list[str], have: list[str], heads: dict[str, str]
) -> Fetched:
    contents = difference(session, repository_id, want, have)
    if not contents.commits:
        return Fetched(None, 0, heads)
    with tempfile.TemporaryFile() as file:
        summary = build_pack(session, services.archive, repository_id, contents, file)
        key = cache_key(repository_id, summary.mpack_id)
        store_cached(services, session, key, file)
    session.commit()
    return Fetched(summary.mpack_id, summary.size, heads, (services.cache, key))


def _wait(services: Services, work: Work, session: Session, repository_id: UUID, *, gap: bool) -> NoReturn:
    """Say why there is nothing to send yet: which jobs are waited for, or which one has failed."""
    live = [*_live(session, repository_id, INDEX), *_live(session, repository_id, PREBUILD)]
    if not live:
        raise_failure(session, repository_id, gap=gap)
        session.rollback()  # gives the connection back: a request that held two would lock up a used-up pool
        with services.sessions.begin() as writing:
            heads = branch_heads(writing, repository_id)
            work.enqueue_prebuild(writing, repository_id, sorted(set(heads.values())))
        live = _live(session, repository_id, PREBUILD)
    raise NotReady(
        "The pack of this repository is being prepared; try again in a moment.",
        retry_after=RETRY_SECONDS,
        why=[reason for job in live for reason in reasons_of(session, job)],
    )


def raise_failure(session: Session, repository_id: UUID, *, gap: bool) -> None:
    """Raise WorkFailed for the job whose failure leaves nothing to send. To be called when no job is under way.

    `gap`: objects are not in the index. Without one only the cache is missing, and what the last prebuild came to
    tells whether another can succeed: a pack that has no index may be needed by nobody any more.
    """
    prebuild = next(iter(list_jobs(session, task=PREBUILD, scope=str(repository_id), limit=1)), None)
    if prebuild is not None and prebuild.status not in BROKEN:
        prebuild = None
    if gap or (prebuild is not None and prebuild.last_error_code == error_code(FetchNotIndexed(1))):
        index = _broken_index(session, repository_id)
        if index is not None:
            raise WorkFailed(_sentence(index), job_id=str(index.job_id))
    if prebuild is None or prebuild.started_at is None:
        return
    indexed_at = session.scalars(select(func.max(Mpack.indexed_at)).where(Mpack.repository_id == repository_id)).one()
    # A prebuild that failed for want of an index which is there by now is no failure: it is run again.
    if indexed_at is None or prebuild.started_at > indexed_at:
        raise WorkFailed(_sentence(prebuild), job_id=str(prebuild.job_id))


def _broken_index(session: Session, repository_id: UUID) -> Job | None:
    """The newest index job that has ended and left a pack without index."""
    unindexed = session.scalars(
        select(Mpack.mpack_id).where(
            Mpack.repository_id == repository_id, Mpack.indexed_at.is_(None), Mpack.state != "staged"
        )
    )
    keys = {mpack_key(mpack_id) for mpack_id in unindexed}
    ended = [
        job
        for status in BROKEN
        for job in list_jobs(session, task=INDEX, scope=str(repository_id), status=status, limit=JOBS_SEEN)
        if job.payload["kwargs"]["mpack_key"] in keys
    ]
    return max(ended, key=lambda job: job.seq, default=None)


def _sentence(job: Job) -> str:
    code = f" ({job.last_error_code})" if job.last_error_code else ""
    return f"The job {job.task} of this repository ended as {job.status}{code}; the operator can look at it."


def _live(session: Session, repository_id: UUID, task: str) -> list[Job]:
    scope = str(repository_id)
    return [
        job
        for status in ("running", "pending")
        for job in list_jobs(session, task=task, scope=scope, status=status, limit=20)
    ]


def reasons_of(session: Session, job: Job) -> list[dict[str, str]]:
    """What a job waits for or has come to, in one sentence, as the wire shows it."""
    reasons = why(session, job.job_id)
    sentence = reasons[0].sentence if reasons else "waits for a worker to claim it"
    return [{"job_id": str(job.job_id), "task": job.task, "status": job.status, "sentence": sentence}]
