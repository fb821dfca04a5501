"""Repositories and who may use them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import DateTime, FetchedValue, ForeignKey, func, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from hub.models.base import Model
from hub.models.history import Branch
from hub.models.principal import NAME, Principal

SLUG = re.compile(r"[a-z0-9]([a-z0-9._-]{0,98}[a-z0-9])?")


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
    deleted_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))


class Membership(Model):
    """A principal's role in somebody else's repository: read, write or admin."""

    __tablename__ = "membership"

    repository_id: Mapped[UUID] = mapped_column(ForeignKey("hub.repository.repository_id"), primary_key=True)
    principal_id: Mapped[UUID] = mapped_column(ForeignKey("hub.principal.principal_id"), primary_key=True)
    role: Mapped[str]


def find_repository(session: Session, owner: str, slug: str) -> Repository | None:
    """The repository at OWNER/SLUG, whoever asks; `hub.auth` decides who may know of it."""
    if not is_path(owner, slug):
        return None  # A URL can hold what no text column can, NUL for one.
    return session.scalars(
        select(Repository)
        .join(Principal, Principal.principal_id == Repository.owner_id)
        .where(Principal.name == owner, Repository.slug == slug, Repository.deleted_at.is_(None))
    ).one_or_none()


def is_path(owner: str, slug: str) -> bool:
    """Whether a repository can be called OWNER/SLUG."""
    return bool(NAME.fullmatch(owner) and SLUG.fullmatch(slug)) and ".." not in slug


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


@dataclass(frozen=True, slots=True)
class Listed:
    """A repository in a list."""

    path: str
    branches: int
    pushed_at: datetime | None


def public_repositories(session: Session, *, limit: int) -> list[Listed]:
    """The public repositories, last pushed first, empty ones at the end."""
    pushed_at = func.max(Branch.updated_at)
    rows = session.execute(
        select(Principal.name, Repository.slug, func.count(Branch.name), pushed_at)
        .join(Principal, Principal.principal_id == Repository.owner_id)
        .outerjoin(Branch, Branch.repository_id == Repository.repository_id)
        .where(Repository.visibility == "public", Repository.deleted_at.is_(None))
        .group_by(Principal.name, Repository.slug)
        .order_by(pushed_at.desc().nulls_last(), Principal.name, Repository.slug)
        .limit(limit)
    )
    return [Listed(f"{owner}/{slug}", branches, at) for owner, slug, branches, at in rows]
