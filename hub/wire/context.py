"""What a route works with: the hub's parts, the caller, the repository of the URL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast
from uuid import UUID

from flask import current_app, g, request
from sqlalchemy.orm import Session

from hub.auth import Caller, Right, authenticate, note_use, open_repository
from hub.errors import Unauthenticated
from hub.services import Services
from hub.wire.codec import API
from hub.work import Work


@dataclass(frozen=True, slots=True)
class Hub:
    """The parts of the running hub."""

    services: Services
    work: Work


def hub() -> Hub:
    """The parts of the hub that this request runs in."""
    return cast("Hub", current_app.extensions["packhouse"])


def asking() -> Caller | None:
    """Who sent this request; None without a token. Raises Unauthenticated for a token that names nobody."""
    with hub().services.sessions() as session:
        return _asking(session)


def _asking(session: Session) -> Caller | None:
    via = "api" if request.path.startswith(API) else str(request.blueprint)
    caller = authenticate(session, request.headers.get("Authorization"), address=request.remote_addr, via=via)
    if caller is not None and not caller.is_noted:
        note_use(session, caller)
        session.commit()
    return caller


def take_page(_endpoint: str | None, values: dict[str, Any] | None) -> None:
    """Take from the URL which part of a repository it is for: see `page`."""
    g.page = values.pop("page", None) if values else None


def page() -> int | None:
    """0 below `-/parts`, N below `-/page/N`, None at a repository's plain URL."""
    return cast("int | None", g.page)


@dataclass(frozen=True, slots=True)
class Opened:
    """The repository that the URL names, for a caller who may do what the route does."""

    repository_id: UUID
    caller: Caller | None
    default_branch: str | None
    repo_id: str
    domain: str

    @property
    def pusher(self) -> Caller:
        """The caller, who is known: writing needs a token."""
        if self.caller is None:
            raise Unauthenticated("A token is needed to write.")
        return self.caller


def opened(owner: str, slug: str, need: Right) -> Opened:
    """Who is asking, and may they: before a byte of the body is decoded. Raises Unauthenticated, Forbidden, Missing."""
    with hub().services.sessions() as session:
        caller = _asking(session)
        repository = open_repository(session, caller, owner, slug, need)
        return Opened(
            repository_id=repository.repository_id,
            caller=caller,
            default_branch=repository.default_branch,
            repo_id=repository.muse_repo_id or str(repository.repository_id),
            domain=repository.domain,
        )
