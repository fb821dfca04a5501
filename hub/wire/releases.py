"""Part A: releases and tags. A release comes as JSON, and every answer to the Muse client is msgpack."""

from __future__ import annotations

from flask import Blueprint, Response, request

from hub.auth import Right
from hub.errors import Invalid
from hub.releases import create_release, delete_release, list_releases, store_tags
from hub.wire.codec import answer, read_map
from hub.wire.context import hub, opened

wire = Blueprint("releases", __name__, url_prefix="/<owner>/<slug>")
RELEASE_BYTES = 4 * 1024 * 1024


@wire.post("/releases")
def create(owner: str, slug: str) -> Response:
    """Keep a release of a pushed commit."""
    repository = opened(owner, slug, Right.WRITE)
    record = read_map(RELEASE_BYTES)
    with hub().services.sessions.begin() as session:
        release_id = create_release(session, repository.repository_id, record)
    return answer({"release_id": release_id}, 201)


@wire.get("/releases")
def list_(owner: str, slug: str) -> Response:
    """The releases, newest first; drafts only for those who may write."""
    drafts = request.args.get("include_drafts") == "1"
    repository = opened(owner, slug, Right.WRITE if drafts else Right.READ)
    with hub().services.sessions() as session:
        found = list_releases(session, repository.repository_id, channel=request.args.get("channel"), drafts=drafts)
    return answer({"releases": found})


@wire.delete("/releases/<tag>")
def delete(owner: str, slug: str, tag: str) -> Response:
    """Remove a release."""
    repository = opened(owner, slug, Right.WRITE)
    with hub().services.sessions.begin() as session:
        delete_release(session, repository.repository_id, tag)
    return answer({"deleted": tag})


@wire.post("/tags")
def tags(owner: str, slug: str) -> Response:
    """Keep the tags that are new."""
    repository = opened(owner, slug, Right.WRITE)
    found = read_map().get("tags", [])
    if not isinstance(found, list):
        raise Invalid("tags", "must be a list of tags.")
    with hub().services.sessions.begin() as session:
        return answer({"stored": store_tags(session, repository.repository_id, found)})
