"""Who may use a repository besides its owner. For those who may administer it."""

from __future__ import annotations

from flask import Blueprint, Response, request

from hub.accounts import grant, list_collaborators
from hub.api.reading import page_limit, read_object, take_choice
from hub.auth import ROLES, Right
from hub.wire.codec import answer
from hub.wire.context import hub, opened

api = Blueprint("collaborators", __name__, url_prefix="/api/repositories/<owner>/<slug>/collaborators")


@api.get("")
def list_(owner: str, slug: str) -> Response:
    """The collaborators and their roles, by name."""
    repository = opened(owner, slug, Right.ADMIN)
    limit = page_limit()
    with hub().services.sessions() as session:
        found = list_collaborators(session, repository.repository_id, after=request.args.get("after"), limit=limit + 1)
    shown = [{"name": name, "role": role} for name, role in found[:limit]]
    return answer({"collaborators": shown, "next": shown[-1]["name"] if len(found) > limit else None})


@api.put("/<name>")
def set_(owner: str, slug: str, name: str) -> Response:
    """Give somebody a role, in place of the one they have."""
    repository = opened(owner, slug, Right.ADMIN)
    role = take_choice(read_object("role"), "role", ROLES)
    with hub().services.sessions.begin() as session:
        grant(session, f"{owner}/{slug}", name, role, by=repository.caller)
    return answer({"name": name, "role": role})


@api.delete("/<name>")
def remove(owner: str, slug: str, name: str) -> Response:
    """Take somebody's role away."""
    repository = opened(owner, slug, Right.ADMIN)
    with hub().services.sessions.begin() as session:
        grant(session, f"{owner}/{slug}", name, None, by=repository.caller)
    return answer({"removed": name})
