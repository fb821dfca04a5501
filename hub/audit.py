"""The audit log: written in the transaction of what it tells of, read by those who administer a repository."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.orm import Session

from hub.auth import Caller
from hub.models import Audit

OPERATOR = "operator"
"""Who acts on the command line, which asks for no token: whoever may use the database."""


def record(session: Session, action: str, by: Caller | None, repository_id: UUID | None, **details: Any) -> None:
    """Write that `by` (None: the operator) has done this. The row stands when the caller's transaction does."""
    session.add(
        Audit(
            action=action,
            principal_id=by.principal_id if by else None,
            name=by.name if by else OPERATOR,
            token_id=by.token_id if by else None,
            token_label=by.label if by else None,
            repository_id=repository_id,
            address=by.address if by else None,
            via=by.via if by else "cli",
            details=details,
        )
    )


@dataclass(frozen=True, slots=True)
class Page:
    """Entries, newest first, and where the next page begins; None when there is none."""

    entries: list[dict[str, Any]]
    next: int | None


def read_audit(session: Session, repository_id: UUID | None, *, after: int | None = None, limit: int = 50) -> Page:
    """What was done to this repository (None: in the whole hub), newest first."""
    query = select(Audit).order_by(Audit.audit_id.desc()).limit(limit + 1)
    if repository_id is not None:
        query = query.where(Audit.repository_id == repository_id)
    if after is not None:
        query = query.where(Audit.audit_id < after)
    found = session.scalars(query).all()
    shown = found[:limit]
    return Page([_as_shown(item) for item in shown], shown[-1].audit_id if len(found) > limit else None)


def _as_shown(item: Audit) -> dict[str, Any]:
    return {
        "id": item.audit_id,
        "happened_at": item.happened_at.isoformat(),
        "action": item.action,
        "name": item.name,
        "token_id": str(item.token_id) if item.token_id else None,
        "token_label": item.token_label,
        "address": item.address,
        "via": item.via,
        **item.details,
    }
