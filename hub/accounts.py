"""What an operator does: principals, tokens, repositories and who may use them."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import func, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session, aliased

from hub import audit
from hub.auth import Caller, Right, issue_token
from hub.errors import Conflict, Exists, Invalid, Missing
from hub.identity import DOMAIN
from hub.models import Membership, Principal, Repository, Token
from hub.models.principal import NAME
from hub.models.repository import find_repository, is_path, lock_repository
from hub.records import check_branch

RESERVED = frozenset({"api", "health", "static", "login", "logout", "admin", "metrics", "docs"})
"""First parts of the hub's own URLs, now or later."""
TIMES = ("created_at", "used_at", "expires_at", "revoked_at")
LABEL_MAX = 100
"""Characters of a token's label."""


def create_principal(session: Session, name: str, *, is_superuser: bool = False) -> Principal:
    """A new principal. Raises Invalid for a bad name, Conflict for one that is taken."""
    if not NAME.fullmatch(name) or name in RESERVED:
        raise Invalid("name", "must be 1 to 39 lower-case letters, digits and inner hyphens, and no word of the hub's.")
    if session.scalars(select(Principal).where(Principal.name == name)).one_or_none():
        raise Conflict(f"There is a user {name} already.")
    principal = Principal(principal_id=uuid4(), name=name, is_superuser=is_superuser)
    session.add(principal)
    session.flush()
    return principal


def find_principal(session: Session, name: str) -> Principal:
    """The principal of this name. Raises Missing."""
    if not NAME.fullmatch(name):
        raise Missing("There is no user of this name.")  # a URL can hold what no text column can
    principal = session.scalars(select(Principal).where(Principal.name == name)).one_or_none()
    if principal is None:
        raise Missing(f"There is no user {name}.")
    return principal


def create_token(
    session: Session,
    name: str,
    *,
    label: str = "",
    expires_at: datetime | None = None,
    scope: Right = Right.ADMIN,
    repository_id: UUID | None = None,
    by: Caller | None = None,
) -> tuple[UUID, str]:
    """A new token of this user: its id, and its text, which nobody can look up again.

    Raises Missing (no such user) and Invalid (the label). `by`: who does it, for the audit log; None: the operator.
    """
    if not label.isprintable() or len(label) > LABEL_MAX:
        raise Invalid("label", f"must be at most {LABEL_MAX} printable characters.")
    principal_id = find_principal(session, name).principal_id
    token_id, text = issue_token(
        session, principal_id, label=label, expires_at=expires_at, scope=scope, repository_id=repository_id
    )
    said = {"of": name, "created": str(token_id), "label": label, "scope": scope.name.lower()}
    audit.record(session, "token.create", by, repository_id, **said)
    return token_id, text


def revoke_token(session: Session, token_id: UUID, *, by: Caller | None = None) -> None:
    """End a token at once; one that has ended stays as it is. `by` may end their own ones only. Raises Missing."""
    token = session.get(Token, token_id)
    if token is None or (by is not None and token.principal_id != by.principal_id):
        raise Missing(f"There is no token {token_id}.")
    ended = session.execute(
        update(Token)
        .where(Token.token_id == token_id, Token.revoked_at.is_(None))
        .values(revoked_at=func.now())
        .returning(Token.token_id)
    )
    if ended.first() is not None:
        audit.record(session, "token.revoke", by, token.repository_id, revoked=str(token_id), label=token.label)


def list_tokens(
    session: Session, principal_id: UUID, *, after: UUID | None = None, limit: int | None = None
) -> list[dict[str, Any]]:
    """A user's tokens, newest first, the ended ones too; `after`: the id of the last one seen."""
    owner = aliased(Principal)
    query = (
        select(Token, owner.name, Repository.slug)
        .outerjoin(Repository, Repository.repository_id == Token.repository_id)
        .outerjoin(owner, owner.principal_id == Repository.owner_id)
        .where(Token.principal_id == principal_id)
        .order_by(Token.created_at.desc(), Token.token_id.desc())
        .limit(limit)
    )
    if after is not None:
        last = select(Token.created_at, Token.token_id).where(
            Token.token_id == after, Token.principal_id == principal_id
        )
        query = query.where(tuple_(Token.created_at, Token.token_id) < last.scalar_subquery())
    return [
        {
            "token_id": str(token.token_id),
            "label": token.label,
            "scope": Right.named(token.scope),
            "repository": f"{name}/{slug}" if slug else None,
            **{field: _moment(getattr(token, field)) for field in TIMES},
        }
        for token, name, slug in session.execute(query)
    ]


def _moment(at: datetime | None) -> str | None:
    return at.isoformat() if at else None


def create_repository(
    session: Session,
    path: str,
    *,
    private: bool = False,
    default_branch: str | None = None,
    domain: str = "code",
    by: Caller | None = None,
) -> Repository:
    """A new, empty repository at OWNER/SLUG. Raises Invalid, Missing (no such owner), Exists."""
    owner, slug = split_path(path)
    principal = find_principal(session, owner)
    check_default_branch(default_branch)
    if not DOMAIN.fullmatch(domain):
        raise Invalid("domain", "must begin with a lower-case letter; letters, digits, hyphens, underscores follow.")
    made = session.scalars(
        insert(Repository)
        .values(
            repository_id=uuid4(),
            owner_id=principal.principal_id,
            slug=slug,
            visibility="private" if private else "public",
            default_branch=default_branch,
            domain=domain,
        )
        .on_conflict_do_nothing()
        .returning(Repository)
    ).one_or_none()
    if made is None:
        raise Exists(f"There is a repository {path} already.")
    audit.record(session, "repository.create", by, made.repository_id, path=path, visibility=made.visibility)
    return made


def check_default_branch(name: str | None) -> str | None:
    """The name if it can be a default branch: without a slash, for the Muse client can't clone such a one."""
    if name is not None and "/" in check_branch(name, "default_branch"):
        raise Invalid("default_branch", "must have no slash: the Muse client could not clone it.")
    return name


def grant(session: Session, path: str, name: str, role: str | None, *, by: Caller | None = None) -> None:
    """Give a user a role in a repository (read, write, admin), or take it away (None). Raises Invalid and Missing."""
    owner, slug = split_path(path)
    repository = find_repository(session, owner, slug)
    if repository is None:
        raise Missing(f"There is no repository {path}.")
    if name == owner:
        raise Invalid("name", f"{name} owns the repository, and has every right in it.")
    lock_repository(session, repository.repository_id)
    key = {"repository_id": repository.repository_id, "principal_id": find_principal(session, name).principal_id}
    membership = session.get(Membership, key)
    said = {"collaborator": name, "old_role": membership.role if membership else None}
    if role is None:
        if membership is None:
            raise Missing(f"{name} has no role in {path}.")
        session.delete(membership)
        audit.record(session, "collaborator.remove", by, repository.repository_id, **said)
    else:
        if membership is None:
            session.add(Membership(**key, role=role))
        else:
            membership.role = role
        audit.record(session, "collaborator.set", by, repository.repository_id, **said, role=role)
    session.flush()


def list_collaborators(
    session: Session, repository_id: UUID, *, after: str | None = None, limit: int | None = None
) -> list[tuple[str, str]]:
    """(name, role) of those who have a role in the repository, by name; `after`: the last name seen."""
    query = (
        select(Principal.name, Membership.role)
        .join(Principal, Principal.principal_id == Membership.principal_id)
        .where(Membership.repository_id == repository_id)
        .order_by(Principal.name)
        .limit(limit)
    )
    if after is not None:
        query = query.where(Principal.name > after.replace("\0", ""))
    return [(name, role) for name, role in session.execute(query)]


def split_path(path: str, field: str = "repository") -> tuple[str, str]:
    """OWNER and SLUG of OWNER/SLUG. Raises Invalid naming `field`."""
    owner, slash, slug = path.partition("/")
    if not slash or not is_path(owner, slug):
        raise Invalid(field, "must be OWNER/SLUG in lower-case letters, digits, dots, hyphens and underscores.")
    return owner, slug
