"""Who is asking, and what they may do: every decision of the hub, in one place.

A private repository is Missing to strangers, whatever they ask for: a refusal would tell that it exists.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum
from uuid import UUID, uuid4

from sqlalchemy import ColumnElement, false, func, or_, select, update
from sqlalchemy.orm import Session

from hub.errors import Forbidden, Missing, Unauthenticated
from hub.models import Membership, Principal, Repository, Token
from hub.models.repository import find_repository, is_path

MARK = "ph_"
"""Every token begins so: a leaked one is recognised by scanners, and by people."""
USED_EVERY = timedelta(minutes=1)
"""How old a token's time of last use may grow before it is written again."""


class Right(IntEnum):
    """What a principal may do in a repository, or a token at all; each includes those below it."""

    NONE = 0
    READ = 1
    WRITE = 2
    ADMIN = 3

    @classmethod
    def named(cls, name: str) -> Right:
        """The right called read, write or admin, as the tables and the API write it."""
        return cls[name.upper()]


ROLES = ("read", "write", "admin")
"""The names of the rights, in the tables, the API and the command line; each includes those before it."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request, and by which token."""

    principal_id: UUID
    name: str
    is_superuser: bool
    token_id: UUID
    label: str
    scope: Right
    """The greatest right that the token gives."""
    repository_id: UUID | None
    """The only repository that the token is for; None: all that its principal may use."""
    expires_at: datetime | None
    is_noted: bool
    """Whether the token's time of last use is about now."""
    address: str | None
    """Where the request came from."""
    via: str
    """By which of the hub's doors it came: muse, mpack, releases, api, web."""


def token_hash(token: str) -> bytes:
    """What is stored of a token. It has 256 random bits, so a plain SHA-256 can't be searched."""
    return hashlib.sha256(token.encode()).digest()


def issue_token(
    session: Session,
    principal_id: UUID,
    *,
    label: str,
    expires_at: datetime | None,
    scope: Right = Right.ADMIN,
    repository_id: UUID | None = None,
) -> tuple[UUID, str]:
    """A new token of this principal: its id and its text, which is kept nowhere."""
    text = MARK + secrets.token_urlsafe(32)
    token = Token(
        token_id=uuid4(),
        principal_id=principal_id,
        token_hash=token_hash(text),
        label=label,
        scope=scope.name.lower(),
        repository_id=repository_id,
        expires_at=expires_at,
        revoked_at=None,
    )
    session.add(token)
    session.flush()
    return token.token_id, text


def authenticate(
    session: Session, authorization: str | None, *, address: str | None = None, via: str = "api"
) -> Caller | None:
    """The caller named by an `Authorization` header; None without one.

    Raises Unauthenticated for a header that names nobody. The token is found by its hash, so the time the look-up
    takes tells nothing about the text: whoever learned a stored hash from it could not make a token of it.
    """
    if authorization is None:
        return None
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated("The Authorization header must be: Bearer TOKEN.")
    caller = _find_caller(session, Token.token_hash == token_hash(token.strip()), address, via)
    if caller is None:
        raise Unauthenticated("This token is unknown, expired or revoked; ask the operator for a new one.")
    return caller


def _find_caller(session: Session, is_token: ColumnElement[bool], address: str | None, via: str) -> Caller | None:
    """Who has this token, while it is good."""
    noted = func.coalesce(Token.used_at > func.now() - USED_EVERY, false()).label("noted")
    row = session.execute(
        select(Principal.principal_id, Principal.name, Principal.is_superuser, Token, noted)
        .join(Token, Token.principal_id == Principal.principal_id)
        .where(
            is_token,
            Token.revoked_at.is_(None),
            or_(Token.expires_at.is_(None), Token.expires_at > func.now()),
        )
    ).one_or_none()
    if row is None:
        return None
    return Caller(
        principal_id=row.principal_id,
        name=row.name,
        is_superuser=row.is_superuser,
        token_id=row.Token.token_id,
        label=row.Token.label,
        scope=Right.named(row.Token.scope),
        repository_id=row.Token.repository_id,
        expires_at=row.Token.expires_at,
        is_noted=row.noted,
        address=address,
        via=via,
    )


def note_use(session: Session, caller: Caller) -> None:
    """Write that the caller's token is used now. Of many requests at once one does it, the others don't wait."""
    free = select(Token.token_id).where(Token.token_id == caller.token_id).with_for_update(skip_locked=True)
    session.execute(update(Token).where(Token.token_id.in_(free)).values(used_at=func.now()))


def right_of(session: Session, caller: Caller | None, repository: Repository) -> Right:
    """The greatest right that the caller has in the repository: what the role gives, and the token lets through."""
    public = Right.READ if repository.visibility == "public" else Right.NONE
    if caller is None or caller.repository_id not in (None, repository.repository_id):
        return public
    return max(public, min(caller.scope, _role_of(session, caller, repository)))


def _role_of(session: Session, caller: Caller, repository: Repository) -> Right:
    if caller.is_superuser or caller.principal_id == repository.owner_id:
        return Right.ADMIN
    role = session.scalars(
        select(Membership.role).where(
            Membership.repository_id == repository.repository_id, Membership.principal_id == caller.principal_id
        )
    ).one_or_none()
    return Right.named(role) if role else Right.NONE


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
    raise Forbidden(f"{caller.name} has no right to {need.name.lower()} in {owner}/{slug}, or the token gives none.")


def still_may_write(session: Session, token_id: UUID, repository_id: UUID) -> bool:
    """Whether a token that was given an upload URL is still good, and still lets its principal write here."""
    caller = _find_caller(session, Token.token_id == token_id, None, "transfer")
    repository = session.get(Repository, repository_id)
    if caller is None or repository is None or repository.deleted_at is not None:
        return False
    return right_of(session, caller, repository) >= Right.WRITE


def require_token(caller: Caller | None, need: Right, *, whole: bool = True) -> Caller:
    """The caller of a call that is about no repository that exists. `whole`: a token for one repository won't do.

    Raises Unauthenticated without a token, Forbidden for one whose scope is too small.
    """
    if caller is None:
        raise Unauthenticated("A token is needed for this.")
    if caller.scope < need:
        raise Forbidden(f"This token may {caller.scope.name.lower()}; the call needs the scope {need.name.lower()}.")
    if whole and caller.repository_id is not None:
        raise Forbidden("This token is for one repository; the call needs one for all that you may use.")
    return caller
