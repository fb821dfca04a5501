"""What is in a repository: its files with their last commits, its languages."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from flask import Blueprint, Response, request
from sqlalchemy.orm import Session

from hub.api.reading import page_limit
from hub.auth import Right
from hub.errors import Missing, NotReady
from hub.last_commits import manifest_of, read_last_commits
from hub.models import CodeIntel
from hub.models.facts import object_sizes
from hub.models.history import branch_heads
from hub.refs import find_commit
from hub.wire.codec import answer
from hub.wire.context import hub, opened

api = Blueprint("tree", __name__, url_prefix="/api/repositories/<owner>/<slug>")


@api.get("/files")
def files(owner: str, slug: str) -> Response:
    """The files of a commit by path, a page at a time, each with its size and the last commit that changed it."""
    repository = opened(owner, slug, Right.READ)
    after, under, limit = request.args.get("after", ""), request.args.get("under", ""), page_limit()
    with hub().services.sessions() as session:
        commit_id = _wanted(session, repository.repository_id, repository.default_branch)
        manifest = manifest_of(session, repository.repository_id, commit_id)
        known = read_last_commits(session, repository.repository_id, commit_id) or {}
        folder = f"{under.strip('/')}/" if under.strip("/") else ""
        paths = sorted(path for path in manifest if path.startswith(folder) and path > after)
        shown = paths[:limit]
        sizes = object_sizes(session, repository.repository_id, sorted({manifest[path] for path in shown}))
    found = [
        {
            "path": path,
            "object_id": manifest[path],
            "size": sizes.get(manifest[path], 0),
            "last_commit": known.get(path),
        }
        for path in shown
    ]
    return answer({"commit_id": commit_id, "files": found, "next": shown[-1] if len(paths) > limit else None})


@api.get("/languages")
def languages(owner: str, slug: str) -> Response:
    """Languages and sizes of the head of a branch."""
    repository = opened(owner, slug, Right.READ)
    with hub().services.sessions() as session:
        commit_id = _wanted(session, repository.repository_id, repository.default_branch)
        row = session.get(CodeIntel, (repository.repository_id, commit_id))
        heads = branch_heads(session, repository.repository_id)
    if row is None and commit_id in heads.values():
        raise NotReady("The languages of the last push are being counted; try again.", retry_after=2, why=[])
    if row is None:
        raise Missing("Languages are kept for the heads of branches; ask for one of these.")
    said: dict[str, Any] = {"commit_id": commit_id, **row.statistics}
    return answer(said)


def _wanted(session: Session, repository_id: UUID, default: str | None) -> str:
    return find_commit(session, repository_id, request.args.get("ref") or default or "main").commit_id
