"""A small client of the Muse protocol, written from its description: the same requests, in the same order."""

from __future__ import annotations

import hashlib
import re
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgpack

from bench.worlds import Commit
from hub import records

LARGE_BYTES = 65_536
BATCH_OBJECTS = 400
TOO_LARGE = 413
PAGES = re.compile(r"has (\d+) pages")
HEADERS = {"Accept": "application/x-msgpack, application/json", "Content-Type": "application/x-msgpack"}


class Refused(Exception):
    """The hub said no."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(f"HTTP {status}: {sentence}")
        self.status = status
        self.sentence = sentence


class Muse:
    """One client; `sent` and `received` count the bytes of all bodies. No request is kept alive, as the real one."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._headers = {**HEADERS, "Authorization": f"Bearer {token}"}
        self.sent = 0
        self.received = 0

    def push(self, commits: list[Commit]) -> None:
        """Push these commits to main."""
        self._ask("GET", "refs")
        contents = {records.object_id(data): data for commit in commits for data in commit.tree.values()}
        missing = self._ask("POST", "filter-objects", {"object_ids": sorted(contents)})["missing"]
        large = [item for item in missing if len(contents[item]) > LARGE_BYTES]
        links: dict[str, str] = {}
        if large:
            links = self._ask("POST", "presign", {"object_ids": missing, "direction": "put"})["presigned"]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda item: self._put(links[item], contents[item]), links))
        inline = [item for item in missing if item not in links]
        batches = [inline[start : start + BATCH_OBJECTS] for start in range(0, len(inline), BATCH_OBJECTS)]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda batch: self._send(batch, contents), batches))
        snapshots = {commit.snapshot["snapshot_id"]: commit.snapshot for commit in commits}
        bundle = {
            "commits": [commit.record for commit in reversed(commits)],
            "snapshots": [snapshots[item] for item in sorted(snapshots)],
            "objects": [],
        }
        if self._ask("POST", "push", {"bundle": bundle, "branch": "main", "force": False})["ok"] is not True:
            raise Refused(200, "the push was rejected")

    def clone(self, folder: Path) -> None:
        """Fetch everything, in parts if it is too large, verify each object, write the files of main."""
        heads = self._ask("GET", "refs")["branch_heads"]
        got = self._fetch(list(heads.values()))
        contents = {item["object_id"]: item["content"] for item in got["objects"]}
        for object_id, data in contents.items():
            if hashlib.sha256(data).hexdigest() != object_id:
                raise SystemExit(f"{object_id} has other bytes")
        snapshot_of = {item["commit_id"]: item["snapshot_id"] for item in got["commits"]}
        manifests = {item["snapshot_id"]: item["manifest"] for item in got["snapshots"]}
        for path, object_id in manifests[snapshot_of[heads["main"]]].items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(contents[object_id])

    def _fetch(self, want: list[str]) -> dict[str, list[dict[str, Any]]]:
        try:
            return self._ask("POST", "fetch", {"want": want, "have": []})
        except Refused as refused:
            if refused.status != TOO_LARGE:
                raise
        whole: dict[str, list[dict[str, Any]]] = {"commits": [], "snapshots": [], "objects": []}
        part = {"commits": want}
        while part["commits"]:
            asked = {"want": want, "have": [item["commit_id"] for item in whole["commits"]]}
            try:
                part = self._ask("POST", "-/parts/fetch", asked)
                parts = [part]
            except Refused as refused:
                found = PAGES.search(refused.sentence)
                if found is None:
                    raise
                parts = [self._ask("POST", f"-/page/{n + 1}/fetch", asked) for n in range(int(found[1]))]
            for part in parts:
                for name, items in whole.items():
                    items.extend(part[name])
        return whole

    def _send(self, batch: list[str], contents: dict[str, bytes]) -> None:
        self._ask("POST", "push/objects", {"objects": [{"object_id": i, "content": contents[i]} for i in batch]})

    def _put(self, url: str, data: bytes) -> None:
        self.sent += len(data)
        urllib.request.urlopen(urllib.request.Request(url, data=data, method="PUT"), timeout=300).close()

    def _ask(self, method: str, path: str, data: dict[str, Any] | None = None) -> dict[str, Any]:
        body = None if data is None else msgpack.packb(data)
        self.sent += len(body or b"")
        request = urllib.request.Request(f"{self._url}/{path}", data=body, method=method, headers=self._headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                raw = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                raise Refused(error.code, error.read()[:200].decode()) from None
        self.received += len(raw)
        found: dict[str, Any] = msgpack.unpackb(raw)
        return found
