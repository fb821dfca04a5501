"""A hub to test: an application on a real database, its users, and histories to push by both transports."""

from __future__ import annotations

import io
import itertools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgpack
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

import tasks.testing
from hub import records
from hub.accounts import create_principal, create_repository, create_token
from hub.app import create_app
from hub.pack.writer import PackWriter
from hub.settings import Settings
from hub.wire import in_time
from hub.wire.context import Hub
from hub.work import INDEX, PREBUILD
from storage import Store

MSGPACK = "application/x-msgpack"
MUSE_ACCEPT = "application/x-msgpack, application/json"
END_SECONDS = 30
BEGIN = datetime(2026, 3, 24, 12, tzinfo=UTC)


@dataclass
class History:
    """Commits made for a test. Times count up, so ids are the same in every run."""

    commits: dict[str, dict[str, Any]] = field(default_factory=dict)
    snapshots: dict[str, dict[str, Any]] = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)
    clock: itertools.count = field(default_factory=itertools.count)  # type: ignore[type-arg]

    def commit(self, files: Mapping[str, bytes], *parents: str, message: str = "A commit", **others: Any) -> str:
        """Commit a whole tree; the id of the commit."""
        manifest = {path: records.object_id(content) for path, content in files.items()}
        self.contents |= {records.object_id(content): content for content in files.values()}
        at = (BEGIN + timedelta(seconds=next(self.clock))).isoformat()
        snapshot = records.snapshot_record(manifest, at)
        self.snapshots[snapshot["snapshot_id"]] = snapshot
        commit = records.commit_record(
            snapshot_id=snapshot["snapshot_id"], message=message, committed_at=at, parents=parents, **others
        )
        self.commits[commit["commit_id"]] = commit
        return str(commit["commit_id"])

    def line(self, count: int, *, files: int = 3, start: int = 0, parent: str | None = None) -> list[str]:
        """A line of commits, each changing one file; their ids, oldest first."""
        tree = {f"dir/file{number}.txt": b"first %d\n" % number for number in range(files)}
        ids: list[str] = []
        for number in range(start, start + count):
            tree[f"dir/file{number % files}.txt"] = b"content %d\n" % number
            ids.append(self.commit(tree, *(ids[-1:] or ([parent] if parent else []))))
        return ids

    def ancestors(self, tip: str, known: Sequence[str] = ()) -> list[str]:
        """The tip and its ancestors that are not ancestors of `known`, newest first as the Muse client sends them."""
        stop = {found for commit_id in known for found in self.ancestors(commit_id)} if known else set()
        found: dict[str, None] = {}
        queue = [tip]
        while queue:
            commit_id = queue.pop(0)
            if commit_id not in stop and commit_id not in found:
                found[commit_id] = None
                record = self.commits[commit_id]
                queue += [p for p in (record["parent_commit_id"], record["parent2_commit_id"]) if p]
        return list(found)

    def objects_of(self, commit_ids: Sequence[str]) -> list[str]:
        """Objects that these commits' snapshots name, sorted, without the empty one."""
        named: set[str] = set()
        for commit_id in commit_ids:
            named |= set(self.snapshots[self.commits[commit_id]["snapshot_id"]]["manifest"].values())
        return sorted(named - {records.EMPTY_OBJECT_ID})

    def mpack(self, commit_ids: Sequence[str], *, without: Sequence[str] = ()) -> tuple[str, bytes]:
        """(id, bytes) of a pack with these commits, their snapshots and objects, except those in `without`."""
        out = io.BytesIO()
        writer = PackWriter(out)
        for object_id in self.objects_of(commit_ids):
            if object_id not in without:
                writer.add_object(object_id, self.contents[object_id])
        for commit_id in reversed(commit_ids):
            writer.add_snapshot(records.parse_snapshot(self.snapshots[self.commits[commit_id]["snapshot_id"]]))
        for commit_id in reversed(commit_ids):
            writer.add_commit(records.parse_commit(self.commits[commit_id]))
        return writer.finish().mpack_id, out.getvalue()

    def bundle(self, commit_ids: Sequence[str]) -> dict[str, Any]:
        """The `bundle` of a Part A push."""
        snapshots = {self.commits[commit_id]["snapshot_id"] for commit_id in commit_ids}
        return {
            "commits": [self.commits[commit_id] for commit_id in commit_ids],
            "snapshots": [self.snapshots[snapshot_id] for snapshot_id in sorted(snapshots)],
            "objects": [],
        }


class World:
    """One hub with one user, `alice`, and her repository `alice/data`."""

    def __init__(self, database_url: str, archive: Store, cache: Store, **settings: Any) -> None:
        self.archive = archive
        self.cache = cache
        self.app: Flask = create_app(
            Settings(
                database_url=database_url,
                s3_endpoint_url="http://127.0.0.1:1",
                s3_access_key="unused",
                s3_secret_key="unused",
                secret_key="x" * 32,
                **{"rate_per_token": 0, "rate_per_address": 0} | settings,
            ),
            archive=archive,
            cache=cache,
        )
        self.hub: Hub = self.app.extensions["packhouse"]
        self.client: FlaskClient = self.app.test_client()
        self.token = self.user("alice")
        self.repository_id = self.repository("alice/data")
        self.base = "/alice/data"

    def close(self) -> None:
        """Wait for pushes that outlive their requests, which would open connections again, and close all."""
        for thread in threading.enumerate():
            if thread.name.startswith(f"{in_time.THREAD}_"):
                thread.join(END_SECONDS)
                assert not thread.is_alive(), "a push does not end"
        with self.app.app_context():
            from hub.models import db

            db.engine.dispose()

    def user(self, name: str, **options: Any) -> str:
        with self.hub.services.sessions.begin() as session:
            create_principal(session, name, **options)
            return create_token(session, name)[1]

    def repository(self, path: str, **options: Any) -> UUID:
        with self.hub.services.sessions.begin() as session:
            return create_repository(session, path, **options).repository_id

    def post(self, path: str, data: Any, *, token: str | None = "", muse: bool = False) -> TestResponse:
        """POST to the repository, as JSON or as the Muse client does."""
        headers = self.headers(token)
        if muse:
            body, mimetype = msgpack.packb(data), MSGPACK
            headers["Accept"] = MUSE_ACCEPT
            return self.client.post(self.base + path, data=body, content_type=mimetype, headers=headers)
        return self.client.post(self.base + path, json=data, headers=headers)

    def get(self, path: str, *, token: str | None = "", muse: bool = False) -> TestResponse:
        headers = self.headers(token)
        if muse:
            headers["Accept"] = MUSE_ACCEPT
        return self.client.get(self.base + path, headers=headers)

    def headers(self, token: str | None = "") -> dict[str, str]:
        """`token` "": alice's; None: none."""
        found = self.token if token == "" else token
        return {} if found is None else {"Authorization": f"Bearer {found}"}

    def push_mpack(self, history: History, tip: str, branch: str = "main", **options: Any) -> TestResponse:
        """Push by Part B what the branch lacks, through the hub's own upload URL."""
        known = [head for head in self.heads().values() if head in history.commits]
        # A branch at a known commit: the pack brings that commit again.
        commit_ids = history.ancestors(tip, known) or [tip]
        mpack_id, raw = history.mpack(commit_ids, without=history.objects_of(known))
        return self.push_bytes(mpack_id, raw, tip, branch, **options)

    def push_bytes(self, mpack_id: str, raw: bytes, head: str, branch: str = "main", **options: Any) -> TestResponse:
        asked = self.post(
            "/push/mpack/presign", {"mpack_id": mpack_id, "size": len(raw), "branch": branch, "head": head}
        )
        if asked.status_code != 200:
            return asked
        upload = asked.get_json()["upload"]
        if upload is not None:
            put = self.client.put(upload["url"], data=raw, headers=upload["headers"])
            if put.status_code != 200:
                return put
        data = {"mpack_key": asked.get_json()["mpack_key"], "branch": branch, "head": head, "force": False}
        return self.post("/push/mpack", data | options)

    def push_muse(
        self, history: History, tip: str, branch: str = "main", *, force: bool = False, token: str | None = ""
    ) -> TestResponse:
        """Push by Part A what the branch lacks, with the Muse client's requests."""
        known = [head for head in self.heads().values() if head in history.commits and head != tip]
        commit_ids = history.ancestors(tip, known) or [tip]
        wanted = history.objects_of(commit_ids)
        answer = self.post("/filter-objects", {"object_ids": wanted}, muse=True, token=token)
        missing = msgpack.unpackb(answer.data)["missing"] if answer.status_code == 200 else wanted
        for start in range(0, len(missing), 400):
            some = [{"object_id": item, "content": history.contents[item]} for item in missing[start : start + 400]]
            self.post("/push/objects", {"objects": some}, muse=True, token=token)
        data = {"bundle": history.bundle(commit_ids), "branch": branch, "force": force}
        return self.post("/push", data, muse=True, token=token)

    def heads(self) -> dict[str, str]:
        return dict(self.get("/refs").get_json()["branch_heads"])

    def drain(self) -> list[Any]:
        """Run the jobs that can run, as a worker does; what became of those that a clone waits for."""
        return [ran for ran in tasks.testing.drain(self.hub.work.app) if ran.task in (INDEX, PREBUILD)]
