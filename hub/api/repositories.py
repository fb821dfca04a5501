"""Repositories: made, listed, shown, changed and deleted; their commits, and what was done to them."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, request

from hub.accounts import create_repository, split_path
from hub.api.reading import page_limit, read_object, take_choice, take_words
from hub.audit import read_audit
from hub.auth import Right, open_repository, require_token
from hub.commit_log import list_commits
from hub.errors import Forbidden, Invalid
from hub.models import Repository
from hub.models.repository import is_path
from hub.repositories import change_repository, delete_repository, list_repositories
from hub.wire.codec import answer
from hub.wire.context import asking, hub, opened

api = Blueprint("repositories", __name__, url_prefix="/api/repositories")
VISIBILITIES = ("public", "private")


@api.post("")
def create() -> Response:
    """Make an empty repository of the caller's; a superuser makes them for everybody."""
    caller = require_token(asking(), Right.WRITE)
    data = read_object("owner", "name", "visibility", "default_branch", "domain")
    owner = take_words(data, "owner", caller.name)
    if owner != caller.name and not caller.is_superuser:
        raise Forbidden("You may make repositories of your own only.")
    name = take_words(data, "name", "")
    if not is_path(owner, name):
        raise Invalid("name", "must be 1 to 100 lower-case letters, digits, dots, hyphens and underscores.")
    with hub().services.sessions.begin() as session:
        made = create_repository(
            session,
            f"{owner}/{name}",
            private=take_choice(data, "visibility", VISIBILITIES) == "private",
            default_branch=take_words(data, "default_branch", "") or None,
            domain=take_words(data, "domain", "code"),
            by=caller,
        )
    return answer(as_shown(owner, made), 201)


@api.get("")
def list_() -> Response:
    """The repositories that the caller may read, by path."""
    caller, limit, after = asking(), page_limit(), request.args.get("after")
    with hub().services.sessions() as session:
        found = list_repositories(session, caller, after=split_path(after, "after") if after else None, limit=limit + 1)
    shown = [as_shown(owner, repository) for owner, repository in found[:limit]]
    more = f"{shown[-1]['owner']}/{shown[-1]['name']}" if len(found) > limit else None
    return answer({"repositories": shown, "next": more})


@api.get("/<owner>/<slug>")
def show(owner: str, slug: str) -> Response:
    """One repository."""
    caller = asking()
    with hub().services.sessions() as session:
        return answer(as_shown(owner, open_repository(session, caller, owner, slug, Right.READ)))


@api.patch("/<owner>/<slug>")
def change(owner: str, slug: str) -> Response:
    """Change who may see the repository, or its default branch."""
    repository = opened(owner, slug, Right.ADMIN)
    data = read_object("visibility", "default_branch")
    with hub().services.sessions.begin() as session:
        changed = change_repository(
            session,
            repository.repository_id,
            visibility=take_choice(data, "visibility", VISIBILITIES) if "visibility" in data else None,
            default_branch=take_words(data, "default_branch", "") or None,
            by=repository.caller,
        )
    return answer(as_shown(owner, changed))


@api.delete("/<owner>/<slug>")
def delete(owner: str, slug: str) -> Response:
    """Take the repository away; the operator can bring it back, with all that was pushed."""
    repository = opened(owner, slug, Right.ADMIN)
    with hub().services.sessions.begin() as session:
        delete_repository(session, repository.repository_id, by=repository.caller)
    return answer({"deleted": f"{owner}/{slug}"})


@api.get("/<owner>/<slug>/commits")
def commits(owner: str, slug: str) -> Response:
    """The commits that `ref` reaches, newest first, a page at a time."""
    repository = opened(owner, slug, Right.READ)
    with hub().services.sessions() as session:
        page = list_commits(
            session,
            repository.repository_id,
            ref=request.args.get("ref"),
            default=repository.default_branch or "main",
            after=request.args.get("after"),
            limit=page_limit(),
        )
    return answer({"commits": page.commits, "next": page.next})


@api.get("/<owner>/<slug>/audit")
def audit(owner: str, slug: str) -> Response:
    """What was done to the repository, newest first."""
    repository = opened(owner, slug, Right.ADMIN)
    after = request.args.get("after")
    if after is not None and not (after.isascii() and after.isdigit() and len(after) < 19):
        raise Invalid("after", "must be the `next` of another page.")
    with hub().services.sessions() as session:
        page = read_audit(session, repository.repository_id, after=int(after) if after else None, limit=page_limit())
    return answer({"entries": page.entries, "next": page.next})


def as_shown(owner: str, repository: Repository) -> dict[str, Any]:
    """A repository as the API shows it."""
    return {
        "repo_id": repository.muse_repo_id or str(repository.repository_id),
        "owner": owner,
        "name": repository.slug,
        "visibility": repository.visibility,
        "default_branch": repository.default_branch,
        "domain": repository.domain,
        "url": f"{request.host_url}{owner}/{repository.slug}",
    }
