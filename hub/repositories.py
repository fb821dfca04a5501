"""Repositories as a whole: listed for those who may see them, changed, deleted and brought back."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, and_, exists, false, func, or_, select, true, tuple_
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from hub import audit
from hub.accounts import check_default_branch, split_path
from hub.auth import Caller
from hub.errors import Exists, Invalid, Missing
from hub.models import Membership, Principal, Repository
from hub.models.history import branch_heads
from hub.models.repository import lock_repository


def list_repositories(
    session: Session, caller: Caller | None, *, after: tuple[str, str] | None, limit: int
) -> list[tuple[str, Repository]]:
    """(owner, repository) of those that the caller may read, by path; `after`: (owner, slug) of the last one seen."""
    query = (
        select(Principal.name, Repository)
        .join(Principal, Principal.principal_id == Repository.owner_id)
        .where(Repository.deleted_at.is_(None), or_(Repository.visibility == "public", _is_theirs(caller)))
        .order_by(Principal.name, Repository.slug)
        .limit(limit)
    )
    if after is not None:
        query = query.where(tuple_(Principal.name, Repository.slug) > after)
    return [(owner, repository) for owner, repository in session.execute(query)]


def _is_theirs(caller: Caller | None) -> ColumnElement[bool]:
    """Whether a repository is one that the caller has a role in, and the token is for: `hub.auth.right_of` as SQL."""
    if caller is None:
        return false()
    role = exists().where(
        Membership.repository_id == Repository.repository_id, Membership.principal_id == caller.principal_id
    )
    theirs = true() if caller.is_superuser else or_(Repository.owner_id == caller.principal_id, role)
    if caller.repository_id is None:
        return theirs
    return and_(theirs, Repository.repository_id == caller.repository_id)


def change_repository(
    session: Session,
    repository_id: UUID,
    *,
    visibility: str | None = None,
    default_branch: str | None = None,
    by: Caller | None = None,
) -> Repository:
    """Set what is given; the repository afterwards. Raises Invalid for a default branch that there is not."""
    repository = lock_repository(session, repository_id)
    before: dict[str, Any] = {}
    if visibility is not None and visibility != repository.visibility:
        before["old_visibility"], repository.visibility = repository.visibility, visibility
    if default_branch is not None and check_default_branch(default_branch) != repository.default_branch:
        heads = branch_heads(session, repository_id)
        if heads and default_branch not in heads:
            raise Invalid("default_branch", "must be a branch of the repository.")
        before["old_default_branch"], repository.default_branch = repository.default_branch, default_branch
    if before:
        now = {"visibility": repository.visibility, "default_branch": repository.default_branch}
        audit.record(session, "repository.change", by, repository_id, **now, **before)
    return repository


def delete_repository(session: Session, repository_id: UUID, *, by: Caller | None = None) -> None:
    """Take the repository away from everybody. It keeps all that was pushed, and can be brought back."""
    lock_repository(session, repository_id).deleted_at = func.now()
    audit.record(session, "repository.delete", by, repository_id)


def restore_repository(session: Session, path: str) -> Repository:
    """Bring back the repository that was deleted last at OWNER/SLUG.

    Raises Missing when none was, Exists when another one has the name by now.
    """
    owner, slug = split_path(path)
    repository = session.scalars(
        select(Repository)
        .join(Principal, Principal.principal_id == Repository.owner_id)
        .where(Principal.name == owner, Repository.slug == slug, Repository.deleted_at.is_not(None))
        .order_by(Repository.deleted_at.desc())
        .limit(1)
        .with_for_update(of=Repository)
    ).one_or_none()
    if repository is None:
        raise Missing(f"No repository {path} was deleted.")
    repository.deleted_at = None
    audit.record(session, "repository.restore", None, repository.repository_id)
    try:
        session.flush()
    except IntegrityError:
        raise Exists(f"There is another repository {path} by now.") from None
    return repository
