"""`fetch.mpack.prebuild`: one pack for all live branch tips, and the body of a Muse `fetch` of the same.

So a clone is a download, by either transport. Both lie in the cache store under their digests, and are named by the
same rows.
"""

from __future__ import annotations

import hashlib
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass
from typing import BinaryIO
from uuid import UUID

from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session

from hub.build import build_pack
from hub.cached import store_cached
from hub.difference import Difference, difference
from hub.fetch_body import ANSWER_BYTES, body_chunks, body_size
from hub.keys import body_key, cache_key
from hub.models import FetchMpackCache
from hub.models.history import branch_heads
from hub.models.repository import lock_repository
from hub.pack.format import Kind
from hub.pack.reader import FileSource, PackReader
from hub.services import Services
from hub.whole import find_pack, whole_pack
from storage import NotFound

OVERTAKEN = "overtaken"
"""What a build came to whose tips were no longer live at its end."""


@dataclass(frozen=True, slots=True)
class Prebuilt:
    """What the cache has for some tips.

    No `body_id`: the body would have at least `body_size` bytes, which is too many; None: nobody knows.
    """

    mpack_id: str
    size: int
    body_id: str | None
    body_size: int | None


def live_tips(session: Session, repository_id: UUID) -> list[str]:
    """The heads of all branches now, each once, sorted."""
    return sorted(set(branch_heads(session, repository_id).values()))


def prebuild(services: Services, session: Session, repository_id: UUID, tips: list[str]) -> str:
    """Build pack and body of these tips and make them the cache's, unless the branches have moved on.

    Returns a word on what was done. The cache rows are swapped in the caller's transaction, under the lock that pushes
    take, and only when what was built is what is live: an older run that ends late can't replace a newer pack, and the
    push that moved a branch has queued a later run. Raises FetchNotIndexed and storage's errors.
    """
    if tips and _is_cached(services, session, repository_id, tips):
        return "fresh"
    built = _build(services, session, repository_id, tips) if tips else None
    lock_repository(session, repository_id)
    if live_tips(session, repository_id) != tips:
        return OVERTAKEN
    session.execute(delete(FetchMpackCache).where(FetchMpackCache.repository_id == repository_id))
    if built is None:
        return "empty"
    rows = [
        {
            "repository_id": repository_id,
            "tip_commit_id": tip,
            "mpack_id": built.mpack_id,
            "size": built.size,
            "body_id": built.body_id,
            "body_size": built.body_size,
        }
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


def prebuilt(session: Session, repository_id: UUID, tips: list[str]) -> Prebuilt | None:
    """What the cache has for exactly these tips, no more and no fewer."""
    rows = session.scalars(select(FetchMpackCache).where(FetchMpackCache.repository_id == repository_id)).all()
    if not rows or sorted(row.tip_commit_id for row in rows) != sorted(set(tips)):
        return None
    found = {Prebuilt(row.mpack_id, row.size, row.body_id, row.body_size) for row in rows}
    return found.pop() if len(found) == 1 else None


def _build(services: Services, session: Session, repository_id: UUID, tips: list[str]) -> Prebuilt:
    contents = difference(session, repository_id, tips, [])
    whole = whole_pack(session, repository_id, contents)
    if whole is not None:
        size = body_size(session, repository_id, contents, whole.object_lengths, limit=ANSWER_BYTES)
        if size > ANSWER_BYTES:
            return Prebuilt(whole.mpack_id, whole.size, body_id=None, body_size=size)
    with tempfile.TemporaryFile() as file:
        summary = build_pack(session, services.archive, repository_id, contents, file)
        store_cached(services, session, cache_key(repository_id, summary.mpack_id), file)
        body_id, size = _build_body(services, session, repository_id, contents, file)
    return Prebuilt(summary.mpack_id, summary.size, body_id, size)


def _build_body(
    services: Services, session: Session, repository_id: UUID, contents: Difference, mpack: BinaryIO
) -> tuple[str | None, int]:
    """(id, size) of the body, its objects taken from the pack that has just been built. No id: it is too large."""
    pack = PackReader.open(FileSource(mpack))
    lengths = [entry.raw_length for entry in pack.entries if entry.kind is Kind.OBJECT]
    size = body_size(session, repository_id, contents, lengths, limit=ANSWER_BYTES)
    if size > ANSWER_BYTES:
        return None, size
    digest = hashlib.sha256()
    with tempfile.TemporaryFile() as file:
        chunks = body_chunks(lambda: nullcontext(session), repository_id, contents, len(lengths), pack.iter_objects())
        for chunk in chunks:
            digest.update(chunk)
            file.write(chunk)
        size = file.tell()
        store_cached(services, session, body_key(repository_id, digest.hexdigest()), file)
    return digest.hexdigest(), size


def _is_cached(services: Services, session: Session, repository_id: UUID, tips: list[str]) -> bool:
    """Whether the cache has exactly these tips, and what its rows name is still there."""
    found = prebuilt(session, repository_id, tips)
    if found is None:
        return False
    try:
        if found.body_id is not None:
            services.cache.head(body_key(repository_id, found.body_id))
    except NotFound:
        return False
    return find_pack(services, session, repository_id, found.mpack_id) is not None
