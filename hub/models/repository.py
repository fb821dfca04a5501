"""Repositories and who may use them."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import DateTime, FetchedValue, ForeignKey, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from hub.models.base import Model
from hub.models.principal import Principal


class Repository(Model):
    """One repository. `muse_repo_id` is the id that clients stamp their commits with."""

    __tablename__ = "repository"

    repository_id: Mapped[UUID] = mapped_column(primary_key=True)
    owner_id: Mapped[UUID] = mapped_column(ForeignKey("hub.principal.principal_id"))
    slug: Mapped[str]
    visibility: Mapped[str]
    default_branch: Mapped[str | None]
    muse_repo_id: Mapped[str | None]
    domain: Mapped[str] = mapped_column(default="code")
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=FetchedValue())


class Membership(Model):
    """A principal's role in somebody else's repository: read, write or admin."""

    __tablename__ = "membership"

    repository_id: Mapped[UUID] = mapped_column(ForeignKey("hub.repository.repository_id"), primary_key=True)
    principal_id: Mapped[UUID] = mapped_column(ForeignKey("hub.principal.principal_id"), primary_key=True)
    role: Mapped[str]


def find_repository(session: Session, owner: str, slug: str) -> Repository | None:
    """The repository at OWNER/SLUG, whoever asks; `hub.auth` decides who may know of it."""
    return session.scalars(
        select(Repository)
        .join(Principal, Principal.principal_id == Repository.owner_id)
        .where(Principal.name == owner, Repository.slug == slug)
    ).one_or_none()


def lock_repository(session: Session, repository_id: UUID) -> Repository:
    """Lock the repository's row until the transaction ends.

    Whatever moves a branch or swaps the clone cache holds this lock, so each sees the other's work whole.
    """
    return session.scalars(
        select(Repository)
        .where(Repository.repository_id == repository_id)
        .with_for_update(key_share=True)
        .execution_options(populate_existing=True)
    ).one()
