"""Pushes made by hand, bad ones too, by either transport; and what a refusal must look like."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgpack
from werkzeug.test import TestResponse

from hub import records
from hub.pack.writer import PackWriter
from tests.hub.views import footprint
from tests.hub.world import BEGIN, World

AT = BEGIN.isoformat()


def commit(
    snapshot: Mapping[str, Any], *parents: str, at: str = AT, message: str = "m", **changes: Any
) -> dict[str, Any]:
    """A commit record with a right id, but for `changes`."""
    made = records.commit_record(snapshot_id=snapshot["snapshot_id"], message=message, committed_at=at, parents=parents)
    return {**made, **changes}


def snapshot(manifest: Mapping[str, str], **changes: Any) -> dict[str, Any]:
    """A snapshot record with a right id, but for `changes`."""
    return {**records.snapshot_record(manifest, AT), **changes}


@dataclass
class Offer:
    """What a push brings; nothing of it is checked here."""

    commits: Sequence[dict[str, Any]]
    snapshots: Sequence[dict[str, Any]] = ()
    contents: Sequence[bytes] = ()
    branch: Any = "main"
    head: str | None = None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def tip(self) -> str:
        return str(self.head or (self.commits[0]["commit_id"] if self.commits else "0" * 64))

    def mpack(self) -> tuple[str, bytes]:
        """A pack that is well-formed on the outside, whatever its records say."""
        out = io.BytesIO()
        writer = PackWriter(out)
        for content in self.contents:
            writer.add_object(records.object_id(content), content)
        for item in self.snapshots:
            writer.add_snapshot(records.Snapshot(item["snapshot_id"], item["manifest"], item["created_at"]))
        for item in reversed(self.commits):
            commit_id, raw = item["commit_id"], msgpack.packb(item)
            writer.add_commit(records.Commit(commit_id, item["snapshot_id"], (), "", "", "", "", raw))
        return writer.finish().mpack_id, out.getvalue()


def stage(world: World, offer: Offer) -> None:
    """What a Part A client sends before its push: the objects."""
    objects = [{"object_id": records.object_id(content), "content": content} for content in offer.contents]
    if objects:
        answer = world.post("/push/objects", {"objects": objects}, muse=True)
        assert answer.status_code == 200, answer.data


def push(world: World, transport: str, offer: Offer) -> TestResponse:
    """Push the offer; by Part A its objects must have been staged."""
    if transport == "mpack":
        mpack_id, raw = offer.mpack()
        return world.push_bytes(mpack_id, raw, offer.tip, offer.branch, **offer.options)
    bundle = {"commits": list(offer.commits), "snapshots": list(offer.snapshots), "objects": []}
    return world.post("/push", {"bundle": bundle, "branch": offer.branch, "force": False, **offer.options}, muse=True)


def refused(answer: TestResponse, status: int, *words: str) -> None:
    """The answer is this status with one short sentence that has these words and gives nothing away."""
    assert answer.status_code == status, answer.data
    if answer.mimetype == "application/json":
        said = answer.get_json()
        assert set(said) <= {"error", "message", "field", "job_id", "why"}
        sentence = said["message"]
    else:
        assert answer.mimetype == "text/plain"
        sentence = answer.text.rstrip("\n")
        assert len(answer.data.decode()) <= 400
    assert sentence.strip()
    assert "\n" not in sentence
    for word in words:
        assert word in sentence, sentence
    for secret in ("ph_", "/tmp/", "/work/", "Traceback", "psycopg", "xxxxxxxx"):
        assert secret not in sentence, sentence


class Unchanged:
    """Nothing is stored while this is open: no row, no key, no job, no branch moved."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __enter__(self) -> None:
        self._before = footprint(self._world)

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            assert footprint(self._world) == self._before
