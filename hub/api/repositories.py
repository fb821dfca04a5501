"""Repositories: made, listed, shown, changed and deleted; and their commits."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, request

from hub.accounts import create_repository
from hub.api.reading import page_limit, read_object, take_choice, take_words
from hub.auth import Right, require_token
from hub.commit_log import list_commits
from hub.errors import Forbidden, Invalid
from hub.models import Repository
from hub.models.repository import is_path
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
