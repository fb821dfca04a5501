"""Mend what a finding names, as far as that is safe: queue work, and stop naming bytes that are wrong."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import delete
from sqlalchemy.orm import Session

from hub.archive import set_aside, unindex
from hub.fsck.findings import Code, Finding
from hub.keys import body_key, cache_key, mpack_key
from hub.models import FetchMpackCache
from hub.models.history import branch_heads
from hub.models.repository import lock_repository
from hub.services import Services
from hub.work import Work


def repair(services: Services, work: Work, finding: Finding) -> str | None:
    """Mend one finding; what was done, None: nothing can be.

    No content is ever deleted from the archive: a pack that is set aside keeps its file until a push replaces it.
    """
    repository_id = finding.repository_id
    if finding.code in (Code.PACK_MISSING, Code.PACK_DAMAGED):
        set_aside(services, repository_id, finding.subject)
        return "set aside"
    if finding.code is Code.CACHE_MISSING:
        # Put only where absent: a damaged file would stay.
        for key in (cache_key(repository_id, finding.subject), body_key(repository_id, finding.subject)):
            services.cache.delete(key)
    with services.sessions.begin() as session:
        if finding.code is Code.INDEX_WRONG:
            unindex(session, repository_id, finding.subject)
        if finding.code in (Code.NOT_INDEXED, Code.INDEX_WRONG):
            work.index.apply_async(
                kwargs={"mpack_key": mpack_key(finding.subject), "head": "", "branch": ""},
                session=session,
                scope=str(repository_id),
            )
            _prebuild(session, work, repository_id)
            return "queued mpack.index"
        if finding.code in (Code.CACHE_MISSING, Code.NOT_PREBUILT):
            lock_repository(session, repository_id)
            session.execute(delete(FetchMpackCache).where(FetchMpackCache.repository_id == repository_id))
            _prebuild(session, work, repository_id)
            return "queued fetch.mpack.prebuild"
    return None


def _prebuild(session: Session, work: Work, repository_id: UUID) -> None:
    work.enqueue_prebuild(session, repository_id, sorted(set(branch_heads(session, repository_id).values())))
