"""Garbage for gc: made by pushes that were cut off, and collected at once."""

from __future__ import annotations

from datetime import timedelta

from hub.gc import Ages, Collected, collect
from hub.keys import archive_key
from tests.hub.views import rows
from tests.hub.world import History, World

AT_ONCE = Ages(unnamed=timedelta(hours=-1), marked=timedelta(hours=-1), uploads=timedelta(hours=-1))
"""Everything is old enough, also what comes within the run."""


def collect_at_once(world: World, **options: object) -> Collected:
    """One run that marks and deletes whatever has no name."""
    return collect(world.hub.services, world.repository_id, ages=AT_ONCE, **options)  # type: ignore[arg-type]


def orphan(world: World, history: History, tip: str) -> str:
    """Store the pack that a push of `tip` would bring, as one leaves it behind that died before its rows; its id."""
    known = [head for head in world.heads().values() if head in history.commits]
    mpack_id, raw = history.mpack(history.ancestors(tip, known), without=history.objects_of(known))
    world.archive.put(archive_key(world.repository_id, mpack_id), raw)
    return mpack_id


def packs(world: World) -> set[str]:
    """The packs of the repository whose bytes lie in the archive."""
    return {stat.key.rpartition("/")[2] for stat in world.archive.list(f"mpacks/{world.repository_id}/")}


def marks(world: World) -> list[tuple[str, bool]]:
    """(pack, whether it was deleted) of each mark."""
    found = rows(world, "SELECT key, deleted_at IS NOT NULL FROM hub.doomed ORDER BY key")
    return [(key.rpartition("/")[2], deleted) for key, deleted in found]
