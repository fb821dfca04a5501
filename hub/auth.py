"""Who is asking, and what they may do: every decision of the hub, in one place.

A private repository is Missing to strangers, whatever they ask for: a refusal would tell that it exists.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from uuid import UUID, uuid4

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from hub.errors import Forbidden, Missing, Unauthenticated
from hub.models import Membership, Principal, Repository, Token
from hub.models.repository import find_repository, is_path

MARK = "ph_"
"""Every token begins so: a leaked one is recognised by scanners, and by people."""


class Right(IntEnum):
    """What a principal may do in a repository; each includes those below it."""

    NONE = 0
    READ = 1
    WRITE = 2
    ADMIN = 3


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request."""

    principal_id: UUID
    name: str
    is_superuser: bool


def token_hash(token: str) -> bytes:
    """What is stored of a token. It has 256 random bits, so a plain SHA-256 can't be searched."""
    return hashlib.sha256(token.encode()).digest()


def issue_token(session: Session, principal_id: UUID, *, label: str, expires_at: datetime | None) -> tuple[UUID, str]:
    """A new token of this principal: its id and its text, which is kept nowhere."""
    text = MARK + secrets.token_urlsafe(32)
    token = Token(
        token_id=uuid4(),
        principal_id=principal_id,
        token_hash=token_hash(text),
        label=label,
        expires_at=expires_at,
        revoked_at=None,
    )
    session.add(token)
    session.flush()
    return token.token_id, text


def authenticate(session: Session, authorization: str | None) -> Caller | None:
    """The caller named by an `Authorization` header; None without one.

    Raises Unauthenticated for a header that names nobody. The token is found by its hash, so the time the look-up
    takes tells nothing about the text.
    """
    if authorization is None:
        return None
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated("The Authorization header must be: Bearer TOKEN.")
    row = session.execute(
        select(Principal.principal_id, Principal.name, Principal.is_superuser)
        .join(Token, Token.principal_id == Principal.principal_id)
        .where(
            Token.token_hash == token_hash(token.strip()),
            Token.revoked_at.is_(None),
            or_(Token.expires_at.is_(None), Token.expires_at > func.now()),
        )
    ).one_or_none()
    if row is None:
        raise Unauthenticated("This token is unknown, expired or revoked; ask the operator for a new one.")
    return Caller(row.principal_id, row.name, row.is_superuser)


def right_of(session: Session, caller: Caller | None, repository: Repository) -> Right:
    """The greatest right that the caller has in the repository."""
    public = Right.READ if repository.visibility == "public" else Right.NONE
    if caller is None:
        return public
    if caller.is_superuser or caller.principal_id == repository.owner_id:
        return Right.ADMIN
    role = session.scalars(
        select(Membership.role).where(
            Membership.repository_id == repository.repository_id, Membership.principal_id == caller.principal_id
        )
    ).one_or_none()
    return max(public, Right[role.upper()] if role else Right.NONE)


def open_repository(session: Session, caller: Caller | None, owner: str, slug: str, need: Right) -> Repository:
    """The repository OWNER/SLUG for a caller who needs this right in it.

    Raises Missing (no such repository, or a private one of strangers), Unauthenticated (a public one, no token) and
    Forbidden (the right is lacking).
    """
    repository = find_repository(session, owner, slug)
    right = Right.NONE if repository is None else right_of(session, caller, repository)
    if repository is None or right is Right.NONE:
        name = f"{owner}/{slug}" if is_path(owner, slug) else "of this name"
        raise Missing(f"There is no repository {name} here, or none that you may read.")
    if right >= need:
        return repository
    if caller is None:
        raise Unauthenticated(f"A token is needed to {need.name.lower()} in {owner}/{slug}.")
    raise Forbidden(f"{caller.name} has no right to {need.name.lower()} in {owner}/{slug}.")
