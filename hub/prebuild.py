"""`fetch.mpack.prebuild`: one pack for all live branch tips, so that a clone is a download."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from uuid import UUID

from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session

from hub.build import build_pack
from hub.difference import difference
from hub.keys import cache_key
from hub.models import FetchMpackCache
from hub.models.history import branch_heads
from hub.models.repository import lock_repository
from hub.services import Services
from storage import AlreadyExists, NotFound

OVERTAKEN = "overtaken"
"""What a build came to whose tips were no longer live at its end."""


def live_tips(session: Session, repository_id: UUID) -> list[str]:
    """The heads of all branches now, each once, sorted."""
    return sorted(set(branch_heads(session, repository_id).values()))


def prebuild(services: Services, session: Session, repository_id: UUID, tips: list[str]) -> str:
    """Build the pack of these tips and make it the cache's, unless the branches have moved on; a word on what was done.

    The cache rows are swapped in the caller's transaction, under the lock that pushes take, and only when what was
    built is what is live: an older run that ends late can't replace a newer pack, and the push that moved a branch
    has queued a later run. Raises FetchNotIndexed and storage's errors.
    """
    if tips and _is_cached(services, session, repository_id, tips):
        return "fresh"
    with tempfile.TemporaryFile() as file:
        if tips:
            contents = difference(session, repository_id, tips, [])
            summary = build_pack(session, services.archive, repository_id, contents, file)
            file.seek(0)
            with suppress(AlreadyExists):
                services.cache.put(cache_key(repository_id, summary.mpack_id), file, if_absent=True)
    lock_repository(session, repository_id)
    if live_tips(session, repository_id) != tips:
        return OVERTAKEN
    session.execute(delete(FetchMpackCache).where(FetchMpackCache.repository_id == repository_id))
    if not tips:
        return "empty"
    rows = [
        {"repository_id": repository_id, "tip_commit_id": tip, "mpack_id": summary.mpack_id, "size": summary.size}
        for tip in tips
    ]
    session.execute(insert(FetchMpackCache), rows)
    return "built"


def cached_mpack(session: Session, repository_id: UUID, tips: list[str]) -> tuple[str, int] | None:
    """(id, size) of the pack that covers all these tips: a hit means that all of them name the same one."""
    rows = session.execute(
        select(FetchMpackCache.tip_commit_id, FetchMpackCache.mpack_id, FetchMpackCache.size).where(
            FetchMpackCache.repository_id == repository_id, FetchMpackCache.tip_commit_id.in_(tips)
        )
    ).all()
    packs = {(row.mpack_id, row.size) for row in rows}
    return packs.pop() if len(packs) == 1 and len(rows) == len(set(tips)) else None


def _is_cached(services: Services, session: Session, repository_id: UUID, tips: list[str]) -> bool:
    """Whether the cache has exactly these tips, in one pack that is still there."""
    hit = cached_mpack(session, repository_id, tips)
    rows = session.scalars(
        select(FetchMpackCache.tip_commit_id).where(FetchMpackCache.repository_id == repository_id)
    ).all()
    if hit is None or sorted(rows) != tips:
        return False
    try:
        services.cache.head(cache_key(repository_id, hit[0]))
    except NotFound:
        return False
    return True
