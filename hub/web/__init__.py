"""Pages for people: what is here, and how to get it. A browser sends no token, and so sees what is public."""

from __future__ import annotations

from flask import Blueprint, Response, request

from hub.auth import Right
from hub.models.history import branch_heads
from hub.models.repository import public_repositories
from hub.prebuild import cached_mpack
from hub.web.page import page
from hub.web.tree import head_tree
from hub.wire.context import hub, opened

web = Blueprint("web", __name__, template_folder="templates")
SHOWN = 200


@web.get("/")
def index() -> Response:
    """The public repositories, last pushed first."""
    with hub().services.sessions() as session:
        repositories = public_repositories(session, limit=SHOWN)
    return page("index", repositories=repositories, base=request.host_url)


@web.get("/<owner>/<slug>")
def repository(owner: str, slug: str) -> Response:
    """One repository: its branches, and the commands that clone it."""
    found = opened(owner, slug, Right.READ)
    with hub().services.sessions() as session:
        heads = branch_heads(session, found.repository_id)
        cached = cached_mpack(session, found.repository_id, sorted(set(heads.values()))) if heads else None
        head = heads.get(found.default_branch or "main")
        tree = None if head is None else head_tree(session, found.repository_id, head, limit=SHOWN)
    return page(
        "repository",
        path=f"{owner}/{slug}",
        url=f"{request.host_url}{owner}/{slug}",
        default=found.default_branch,
        heads=heads,
        ready=cached is not None,
        size=cached[1] if cached else None,
        tree=tree,
    )
