"""A pack whose stored bytes went bad is whole again as soon as somebody pushes it once more, wherever its branch is."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import update

from hub.archive import is_set_aside, secure_pack, store_pack, take_back
from hub.models import Push
from hub.models.doomed import instant
from hub.models.history import branch_heads
from hub.models.repository import lock_repository
from hub.push import Incoming
from hub.services import Services
from hub.work import Work


def mend_pack(services: Services, work: Work, repository_id: UUID, incoming: Incoming) -> bool:
    """Replace the bytes of a pack that was set aside by those pushed now, which are verified; whether it was.

    Its index and the clone cache are made anew, and the pushes that brought it then stand with these jobs. Moves no
    branch: whether the present push may do that is another question. Raises storage's errors.
    """
    with services.sessions() as session:
        if not is_set_aside(session, repository_id, [incoming.mpack_id]):
            return False
        begun_at = instant(session)
    store_pack(services, repository_id, incoming.mpack_id, incoming.file, incoming.upload_etag)
    with services.sessions.begin() as session:
        lock_repository(session, repository_id)
        if not is_set_aside(session, repository_id, [incoming.mpack_id]):
            return True  # another push of the same pack was quicker
        secure_pack(services, session, repository_id, incoming.mpack_id, incoming.file, begun_at)
        take_back(session, repository_id, incoming.mpack_id, "live")
        tips = list(branch_heads(session, repository_id).values())
        jobs = work.enqueue_push(
            session, repository_id, [incoming.mpack_id], branch=incoming.branch, head=incoming.tip, tips=tips
        )
        session.execute(
            update(Push)
            .where(Push.repository_id == repository_id, Push.mpack_ids.contains([incoming.mpack_id]))
            .values(job_ids=jobs)
        )
    return True
