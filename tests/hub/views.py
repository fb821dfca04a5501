"""What a hub holds and sends, as plain sets to compare, and the model that says what it must send."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgpack
from sqlalchemy import text

import tasks.testing
from hub import records
from hub.keys import STAGING, cache_key
from hub.pack.format import Limits
from hub.pack.reader import PackReader
from hub.pack.verify import verify_pack
from hub.work import INDEX, PREBUILD
from tasks.job import Job
from tasks.queue import list_jobs
from tests.hub.world import History, World

HUB_TABLES = (
    "branch", "commit", "fetch_mpack_cache", "membership", "mpack", "mpack_block", "mpack_index", "principal", "push",
    "repository", "snapshot", "token",
)  # fmt: skip


@dataclass(frozen=True)
class Contents:
    """The ids in an answer, and the bytes of its objects."""

    commits: frozenset[str]
    snapshots: frozenset[str]
    objects: frozenset[str]
    order: tuple[str, ...] = field(default=(), compare=False)
    """The commits as they came."""
    bodies: dict[str, bytes] = field(default_factory=dict, compare=False)


def model(history: History, want: Iterable[str], have: Iterable[str] = ()) -> Contents:
    """What a fetch must bring, worked out from the history alone.

    Commits: ancestors of `want` that are none of `have`. Snapshots: theirs, but those of commits that the receiver
    has. Objects: those of these snapshots, but those of the commits in `have` and of the parents at the boundary.
    """
    commits = history.commits

    def closure(start: Iterable[str]) -> set[str]:
        return {found for commit_id in start for found in history.ancestors(commit_id)}

    def named(commit_ids: Iterable[str]) -> set[str]:
        return set(history.objects_of(list(commit_ids)))

    known = [commit_id for commit_id in have if commit_id in commits]
    held = closure(known)
    sent = closure(want) - held
    parents = {commits[item][key] for item in sent for key in ("parent_commit_id", "parent2_commit_id")}
    snapshots = {commits[item]["snapshot_id"] for item in sent} - {commits[item]["snapshot_id"] for item in held}
    objects = {
        object_id for snapshot_id in snapshots for object_id in history.snapshots[snapshot_id]["manifest"].values()
    }
    objects -= named((parents & held) | set(known)) | {records.EMPTY_OBJECT_ID}
    return Contents(frozenset(sent), frozenset(snapshots), frozenset(objects))


def contents_of(pack: PackReader) -> Contents:
    """The contents of an open pack."""
    bodies = {entry.entity_id: b"".join(chunks) for entry, chunks in pack.iter_objects()}
    order = tuple(commit.commit_id for commit in pack.commits())
    snapshots = frozenset(snapshot.snapshot_id for snapshot in pack.snapshots())
    return Contents(frozenset(order), snapshots, frozenset(bodies), order, bodies)


def fetch_mpack(world: World, want: Iterable[str] = (), have: Iterable[str] = (), **options: Any) -> Contents:
    """Fetch by Part B: the answer must be 200, and the pack at its URL the one that it names."""
    answer = world.post("/fetch/mpack", {"want": list(want), "have": list(have)}, **options)
    assert answer.status_code == 200, answer.data
    said = answer.get_json()
    if said["mpack_id"] is None:
        assert said["url"] is None
        assert said["size"] == 0
        return Contents(frozenset(), frozenset(), frozenset())
    raw = world.client.get(said["url"]).data
    assert len(raw) == said["size"]
    return contents_of(verify_pack(io.BytesIO(raw), limits=Limits(), expect_id=said["mpack_id"]))


def fetch_muse(world: World, want: Iterable[str], have: Iterable[str] = (), **options: Any) -> Contents:
    """Fetch by Part A: the answer must be 200, and every object of it its id's."""
    answer = world.post("/fetch", {"want": list(want), "have": list(have)}, muse=True, **options)
    assert answer.status_code == 200, answer.data
    said = msgpack.unpackb(answer.data)
    bodies = {item["object_id"]: item["content"] for item in said["objects"]}
    assert all(records.object_id(content) == object_id for object_id, content in bodies.items())
    order = tuple(item["commit_id"] for item in said["commits"])
    snapshots = frozenset(item["snapshot_id"] for item in said["snapshots"])
    sent = (len(said["commits"]), len(said["snapshots"]), len(said["objects"]))
    assert sent == (len(set(order)), len(snapshots), len(bodies)), "something comes twice"
    return Contents(frozenset(order), snapshots, frozenset(bodies), order, bodies)


def rows(world: World, query: str, **params: Any) -> list[Any]:
    """The committed rows that a query gives."""
    with world.hub.services.sessions() as session:
        return list(session.execute(text(query), params))


def footprint(world: World) -> dict[str, Any]:
    """Everything that is stored: rows of each table, keys of each store, but for uploads that count for nothing."""
    tables = [f"hub.{name}" for name in HUB_TABLES] + ["tasks.job", "tasks.attempt"]
    counts = rows(world, " UNION ALL ".join(f"SELECT '{table}', count(*) FROM {table}" for table in tables))
    return {
        **dict(tuple(row) for row in counts),
        "archive": sorted(stat.key for stat in world.archive.list() if not stat.key.startswith(STAGING)),
        "cache": sorted(stat.key for stat in world.cache.list()),
        "heads": rows(world, "SELECT repository_id, name, head_commit_id FROM hub.branch ORDER BY 1, 2"),
    }


def jobs(world: World, task: str | None = None, status: str | None = None) -> list[Job]:
    """Jobs of the world's repository, oldest first: those of one task, or all that a clone waits for."""
    names = (INDEX, PREBUILD) if task is None else (task,)
    scope = str(world.repository_id)
    with world.hub.services.sessions() as session:
        found = [job for name in names for job in list_jobs(session, task=name, status=status, scope=scope, limit=1000)]
    return sorted(found, key=lambda job: job.seq)


def cached(world: World, repository_id: UUID | None = None) -> dict[str, str]:
    """Tip → pack, as the clone cache has it."""
    found = rows(
        world,
        """
        SELECT encode(tip_commit_id, 'hex'), encode(mpack_id, 'hex') FROM hub.fetch_mpack_cache
        WHERE repository_id = :id
        """,
        id=repository_id or world.repository_id,
    )
    return dict(tuple(row) for row in found)


def cached_contents(world: World) -> Contents:
    """What lies in the one pack of the clone cache."""
    (mpack_id,) = set(cached(world).values())
    with world.cache.get(cache_key(world.repository_id, mpack_id)) as body:
        raw = b"".join(body)
    return contents_of(verify_pack(io.BytesIO(raw), limits=Limits(), expect_id=mpack_id))


def indexed_mpacks(world: World) -> set[str]:
    """Packs that have rows in the index."""
    return {row[0] for row in rows(world, "SELECT DISTINCT encode(mpack_id, 'hex') FROM hub.mpack_index")}


def pushed_mpacks(world: World) -> set[str]:
    """Packs that the accepted pushes brought or adopted."""
    return {row[0] for row in rows(world, "SELECT DISTINCT encode(unnest(mpack_ids), 'hex') FROM hub.push")}


def drain_for_hours(world: World, hours: int = 6) -> list[Any]:
    """Run all jobs with their retries: each hour's drain finds the back-offs over. Those that a clone waits for."""
    begin = datetime.now(UTC)
    return [
        settled
        for hour in range(1, hours + 1)
        for settled in tasks.testing.drain(world.hub.work.app, now=begin + timedelta(hours=hour))
        if settled.task in (INDEX, PREBUILD)
    ]


def check(world: World) -> None:
    """The oracle of the queue, over all jobs."""
    with world.hub.services.sessions() as session:
        tasks.testing.check_invariants(session)
