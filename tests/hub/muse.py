"""The Muse client's requests, byte for byte as it writes them, over a socket of their own each; and its flows."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgpack

from hub import records
from tests.hub.world import MSGPACK, History

ANSWER_BYTES = 67_108_864
OBJECTS_A_REQUEST = 400
PRESIGN_BYTES = 65_536
NEGOTIATE_IDS = 64
SECONDS = 60


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    raw: bytes

    def decoded(self) -> dict[str, Any]:
        """What the client makes of a 2xx: msgpack, whatever its type; anything but a map is an empty one."""
        assert 200 <= self.status < 300, self.raw
        assert len(self.raw) <= ANSWER_BYTES
        found = msgpack.unpackb(self.raw, raw=False) if self.raw else {}
        return found if isinstance(found, dict) else {}

    @property
    def shown(self) -> str:
        """What the client prints of an error."""
        return f"HTTP {self.status}: {self.raw.decode(errors='replace')[:400]}"


def exchange(url: str, head: Sequence[str], body: bytes = b"") -> Answer:
    """Send one request on a connection of its own, and read its answer to the end."""
    where = urlsplit(url)
    with socket.create_connection((str(where.hostname), where.port), SECONDS) as connection:
        connection.sendall("\r\n".join([*head, "", ""]).encode("ascii") + body)
        answer = http.client.HTTPResponse(connection, method=head[0].split(" ")[0])
        answer.begin()
        raw = answer.read()
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, raw)


class Muse:
    """A client with one working copy: the commits that it has, the remote, a token or none."""

    def __init__(self, remote: str, token: str | None = None) -> None:
        self.remote = remote.rstrip("/")
        self.token = token
        self.calls: list[str] = []
        self.commits: list[str] = []

    def request(
        self, method: str, suffix: str, data: Any = None, *, body: bytes | None = None, kind: str = MSGPACK
    ) -> Answer:
        """One request with exactly the client's headers."""
        if data is not None:
            body = msgpack.packb(data, use_bin_type=True)
        url = self.remote + suffix
        where = urlsplit(url)
        query = f"?{where.query}" if where.query else ""
        head = [f"{method} {where.path}{query} HTTP/1.1", "Accept-Encoding: identity"]
        if body is not None:
            head += [f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
        head += [
            f"Host: {where.netloc}",
            "User-Agent: Python-urllib/3.14",
            "Connection: close",
            "Accept: application/x-msgpack, application/json",
        ]
        if self.token is not None:
            head.append(f"Authorization: Bearer {self.token}")
        self.calls.append(f"{method} {suffix}")
        return exchange(url, head, body or b"")

    def refs(self) -> dict[str, Any]:
        return self.request("GET", "/refs").decoded()

    def push(self, history: History, tip: str, branch: str = "main", *, force: bool = False) -> Answer | None:
        """The requests of `muse push`; None when everything is up to date."""
        heads = self.refs()["branch_heads"]
        if heads.get(branch) == tip:
            return None
        known = [head for head in heads.values() if head in history.commits and head != tip]
        commit_ids = history.ancestors(tip, known) or [tip]
        snapshots = {history.commits[item]["snapshot_id"] for item in commit_ids}
        wanted = sorted({item for key in snapshots for item in history.snapshots[key]["manifest"].values()})
        missing = self.request("POST", "/filter-objects", {"object_ids": wanted}).decoded()["missing"]
        self.send_objects(history, missing)
        data = {"bundle": history.bundle(commit_ids), "branch": branch, "force": force}
        return self.request("POST", "/push", data)

    def send_objects(self, history: History, missing: Sequence[str]) -> None:
        large = [item for item in missing if len(history.contents[item]) > PRESIGN_BYTES]
        presigned: dict[str, str] = {}
        if large:
            presigned = self.request("POST", "/presign", {"object_ids": large, "direction": "put"}).decoded()[
                "presigned"
            ]
        for object_id, url in presigned.items():
            assert self.put(url, history.contents[object_id]).status == 200
        rest = [item for item in missing if item not in presigned]
        for start in range(0, len(rest), OBJECTS_A_REQUEST):
            some = rest[start : start + OBJECTS_A_REQUEST]
            objects = [{"object_id": item, "content": history.contents[item]} for item in some]
            self.request("POST", "/push/objects", {"objects": objects}).decoded()

    def put(self, url: str, content: bytes) -> Answer:
        """The presigned PUT: urllib gives the body a type of its own; no token, no checksum."""
        where = urlsplit(url)
        head = [
            f"PUT {url.removeprefix(f'{where.scheme}://{where.netloc}')} HTTP/1.1",
            "Accept-Encoding: identity",
            "Content-Type: application/x-www-form-urlencoded",
            f"Content-Length: {len(content)}",
            f"Host: {where.netloc}",
            "User-Agent: Python-urllib/3.14",
            "Connection: close",
        ]
        self.calls.append("PUT")
        return exchange(url, head, content)

    def clone(self) -> dict[str, Any]:
        """`muse clone`: two requests, never with a token; the answer as the client stores it."""
        assert self.token is None
        return self.fetch(list(self.refs()["branch_heads"].values()), [])

    def pull(self, branch: str = "main") -> dict[str, Any]:
        """`muse pull --no-merge`: rounds of 64 arbitrary commits until the hub is ready, then one fetch."""
        want = [self.refs()["branch_heads"][branch]]
        have = list(self.commits)
        for start in range(0, len(self.commits), NEGOTIATE_IDS):
            batch = self.commits[start : start + NEGOTIATE_IDS]
            said = self.request("POST", "/negotiate", {"want": want, "have": batch}).decoded()
            if said["ready"]:
                have = said["ack"] or batch
                break
        return self.fetch(want, have)

    def fetch(self, want: Sequence[str], have: Sequence[str]) -> dict[str, Any]:
        """Take in what comes: objects are verified, the rest is believed."""
        said = self.request("POST", "/fetch", {"want": list(want), "have": list(have)}).decoded()
        for item in said["objects"]:
            assert isinstance(item["content"], bytes)
            assert records.object_id(item["content"]) == item["object_id"]
        self.commits += [item["commit_id"] for item in said["commits"] if item["commit_id"] not in self.commits]
        return said
