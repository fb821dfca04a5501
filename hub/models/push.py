"""The log of pushes."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import DateTime, FetchedValue, ForeignKey, Uuid, select
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, Session, mapped_column

from hub.models.base import Digest, Model


class Push(Model):
    """One accepted push: who moved which branch from where to where, with which packs and jobs."""

    __tablename__ = "push"

    push_id: Mapped[UUID] = mapped_column(primary_key=True)
    repository_id: Mapped[UUID] = mapped_column(ForeignKey("hub.repository.repository_id"))
    principal_id: Mapped[UUID] = mapped_column(ForeignKey("hub.principal.principal_id"))
    branch: Mapped[str]
    old_head_commit_id: Mapped[str | None] = mapped_column(Digest)
    new_head_commit_id: Mapped[str] = mapped_column(Digest)
    forced: Mapped[bool]
    mpack_ids: Mapped[list[str]] = mapped_column(ARRAY(Digest))
    job_ids: Mapped[list[UUID]] = mapped_column(ARRAY(Uuid))
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=FetchedValue())


def find_push(session: Session, repository_id: UUID, *, branch: str, head: str, mpack_id: str) -> Push | None:
    """The newest accepted push of this very pack to this branch with this head: what a repeat is answered from."""
    return session.scalars(
        select(Push)
        .where(
            Push.repository_id == repository_id,
            Push.branch == branch,
            Push.new_head_commit_id == head,
            Push.mpack_ids == [mpack_id],
        )
        .order_by(Push.created_at.desc())
        .limit(1)
    ).one_or_none()
