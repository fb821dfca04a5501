"""Check the clone cache: what its rows name is there, and somebody prepares what they don't name yet."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hub.fsck.findings import Code, Finding
from hub.keys import body_key
from hub.models.history import branch_heads
from hub.prebuild import prebuilt
from hub.whole import find_pack
from hub.work import PREBUILD
from storage import NotFound
from tasks.queue import list_jobs

if TYPE_CHECKING:
    from hub.fsck.check import Checked
    from storage import Store


def check_cache(checked: Checked) -> Iterator[Finding]:
    """What is wrong with the clone cache; nothing while a prebuild is under way."""
    with checked.services.sessions() as session:
        tips = sorted(set(branch_heads(session, checked.repository_id).values()))
        found = prebuilt(session, checked.repository_id, tips) if tips else None
        busy = any(
            list_jobs(session, task=PREBUILD, scope=str(checked.repository_id), status=status, limit=1)
            for status in ("pending", "running")
        )
        pack = find_pack(checked.services, session, checked.repository_id, found.mpack_id) if found else None
    if busy or not tips:
        return
    if found is None:
        yield checked.found(Code.NOT_PREBUILT, tips[0], "no cached pack covers the branches, and no job is under way")
        return
    named: list[tuple[tuple[Store, str] | None, str]] = [(pack, found.mpack_id)]
    if found.body_id is not None:
        named.append(((checked.services.cache, body_key(checked.repository_id, found.body_id)), found.body_id))
    for place, digest in named:
        if reason := _wrong(checked, place, digest):
            yield checked.found(Code.CACHE_MISSING, digest, reason)


def _wrong(checked: Checked, place: tuple[Store, str] | None, digest: str) -> str | None:
    if place is None:
        return "there is no such file in the cache"
    store, key = place
    try:
        if not checked.with_bytes:
            store.head(key)
            return None
        real = hashlib.sha256()
        with store.get(key) as body:
            for chunk in body:
                real.update(chunk)
    except NotFound:
        return "there is no such file in the cache"
    return None if real.hexdigest() == digest else "the file's SHA-256 is not its name"
