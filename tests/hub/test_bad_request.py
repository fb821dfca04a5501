"""Requests that are no requests: garbage, lies about lengths, forged URLs. Never a 500, nothing stored."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from itsdangerous import TimestampSigner
from werkzeug.test import TestResponse

from hub.wire.signed import DOWNLOAD, UPLOAD
from storage import FaultyStore, MemoryStore, Unavailable
from tests.hub.offers import Offer, Unchanged, commit, push, refused, snapshot
from tests.hub.views import footprint
from tests.hub.world import MSGPACK, MUSE_ACCEPT, History, World

pytestmark = pytest.mark.integration

ID = "ab" * 32
MAPS = ["/filter-objects", "/presign", "/negotiate", "/fetch", "/push/mpack/presign", "/push/mpack", "/fetch/mpack"]
"""Routes whose body is one small map, JSON or msgpack."""
STREAMS = ["/push/objects", "/push"]
"""Routes whose body is msgpack, read piece by piece."""


def send(world: World, path: str, body: bytes | None, kind: str = MSGPACK, **more: Any) -> TestResponse:
    headers = world.headers() | {"Accept": MUSE_ACCEPT if kind == MSGPACK else kind}
    return world.client.post(world.base + path, data=body, content_type=kind, headers=headers, **more)


GARBAGE = {
    "nothing": b"",
    "one number": b"\x05",
    "a list": msgpack.packb([1, 2]),
    "cut short": msgpack.packb({"object_ids": [ID], "bundle": {"commits": []}})[:-3],
    "number keys": msgpack.packb({1: 2}),
    "byte keys": msgpack.packb({b"objects": []}),
    "text that is not UTF-8": b"\x81\xa2\xff\xfe\xc0",
    "bytes after the end": msgpack.packb({"want": []}) + b"\xc0",
    "half a value after the end": msgpack.packb({"want": []}) + b"\xc5",
    "a count that is a lie": b"\x81\xa7objects\xdd\xff\xff\xff\xff",
    "a length that is a lie": b"\x81\xa7objects\xc6\xff\xff\xff\xff",
    "lies within lies": b"\x81\xa7objects" + b"\xdd\x7f\xff\xff\xff" * 600,
    "deep lists": b"\x81\xa7objects" + b"\x91" * 100_000,
    "never used": b"\xc1",
    "an extension": msgpack.packb(dict.fromkeys(["objects", "want", "object_ids", "bundle"], msgpack.ExtType(5, b"x"))),
    "JSON": b'{"object_ids": []}',
}
JSON_GARBAGE = {
    "nothing": b"",
    "cut short": b'{"want": [',
    "a list": b"[]",
    "a number": b"7",
    "not UTF-8": b'{"want": "\xff"}',
    "deep": b"[" * 100_000,
    "a huge number": b'{"size": ' + b"9" * 5000 + b"}",
    "msgpack": msgpack.packb({"want": []}),
}


@pytest.mark.parametrize("path", MAPS + STREAMS)
def test_msgpack_garbage_is_refused(world: World, path: str) -> None:
    with Unchanged(world):
        for name, body in GARBAGE.items():
            answer = send(world, path, body)
            assert answer.status_code in (413, 422), (name, answer.data)
            refused(answer, answer.status_code)


@pytest.mark.parametrize("more", [b"\xc0", b"\x80", b"\n", b"\xc1", b"\xc5"])
def test_bytes_after_the_end_of_what_would_be_taken_are_refused(world: World, more: bytes) -> None:
    tree = snapshot({})
    bundle = {"commits": [commit(tree)], "snapshots": [tree], "objects": []}
    taken = {
        "/fetch/mpack": {"want": [], "have": []},
        "/push": {"bundle": bundle, "branch": "main", "force": False},
        "/push/objects": {"objects": [{"object_id": hashlib.sha256(b"x").hexdigest(), "content": b"x"}]},
        "/filter-objects": {"object_ids": [ID]},
    }
    with Unchanged(world):
        for path, data in taken.items():
            refused(send(world, path, packed(data) + more), 422, "body")
    for path, data in taken.items():
        assert send(world, path, packed(data)).status_code == 200


@pytest.mark.parametrize("path", MAPS)
def test_json_garbage_is_refused(world: World, path: str) -> None:
    with Unchanged(world):
        for name, body in JSON_GARBAGE.items():
            answer = send(world, path, body, "application/json")
            assert answer.status_code == 422, (name, answer.data)
            assert answer.get_json()["error"] == "INVALID"
            refused(answer, 422)


WRONG_FIELDS: list[tuple[str, dict[str, Any], str]] = [
    ("/filter-objects", {"object_ids": ID}, "object_ids"),
    ("/filter-objects", {"object_ids": [ID, 5]}, "object_ids[1]"),
    ("/filter-objects", {"object_ids": [ID.upper()]}, "object_ids[0]"),
    ("/fetch", {"want": [ID + "\n"]}, "want[0]"),
    ("/negotiate", {"want": [], "have": [ID] * 300}, "have"),
    ("/push/mpack/presign", {"mpack_id": "x", "size": 1, "branch": "main", "head": ID}, "mpack_id"),
    ("/push/mpack/presign", {"mpack_id": ID, "size": 0, "branch": "main", "head": ID}, "size"),
    ("/push/mpack/presign", {"mpack_id": ID, "size": True, "branch": "main", "head": ID}, "size"),
    ("/push/mpack/presign", {"mpack_id": ID, "size": 1.5, "branch": "main", "head": ID}, "size"),
    ("/push/mpack/presign", {"mpack_id": ID, "size": 1, "branch": "a..b", "head": ID}, "branch"),
    ("/push/mpack/presign", {"mpack_id": ID, "size": 1, "branch": "main"}, "head"),
    ("/push/mpack", {"mpack_key": "../../etc/passwd", "branch": "main", "head": ID}, "mpack_key"),
    ("/push/mpack", {"mpack_key": f"mpacks/{ID}\n", "branch": "main", "head": ID}, "mpack_key"),
    ("/push/mpack", {"mpack_key": f"mpacks/{ID}", "branch": "\ud800", "head": ID}, "branch"),
    ("/fetch/mpack", {"want": None, "have": []}, "want"),
    ("/fetch/mpack", {"want": [], "have": {"a": 1}}, "have"),
]


def test_wrong_fields_are_named(world: World) -> None:
    with Unchanged(world):
        for path, data, field in WRONG_FIELDS:
            refused(send(world, path, json.dumps(data).encode(), "application/json"), 422, field)


@pytest.mark.parametrize(
    ("field", "value"), [("force", "yes"), ("force", 1), ("expected_head", "main"), ("expected_head", 5)]
)
def test_wrong_option_of_a_push_is_named(world: World, field: str, value: Any) -> None:
    tree = snapshot({})
    with Unchanged(world):
        refused(push(world, "mpack", Offer([commit(tree)], [tree], options={field: value})), 422, field)


def test_wrong_force_of_a_muse_push_is_named(world: World) -> None:
    tree = snapshot({})
    with Unchanged(world):
        refused(push(world, "muse", Offer([commit(tree)], [tree], options={"force": 1})), 422, "force")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=20) | st.binary(max_size=20)
    | st.floats() | st.sampled_from([ID, "main", "mpacks/" + ID]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
FIELDS = [
    "object_ids", "want", "have", "mpack_id", "size", "branch", "head", "mpack_key", "force", "expected_head", "bundle",
    "commits", "snapshots", "objects", "object_id", "content", "commit_id", "snapshot_id", "manifest", "message",
]  # fmt: skip
SHAPES = st.dictionaries(st.sampled_from(FIELDS), VALUES | st.dictionaries(st.sampled_from(FIELDS), VALUES), max_size=5)


def packed(value: Any) -> bytes:
    return bytes(msgpack.packb(value, unicode_errors="surrogatepass"))


@pytest.mark.parametrize("path", MAPS + STREAMS)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    body=st.binary(max_size=60)
    | SHAPES.map(packed)
    | st.tuples(SHAPES.map(packed), st.binary(max_size=5)).map(b"".join)
)
def test_no_body_makes_the_hub_fail(world: World, path: str, body: bytes) -> None:
    """Whatever the bytes are: an answer to a question, or a refusal with a reason."""
    before = footprint(world)
    assert send(world, path, body).status_code in (200, 404, 413, 422)
    assert footprint(world) == before


@pytest.mark.parametrize("path", MAPS + STREAMS)
def test_body_over_the_cap_is_refused(new_world: Callable[..., World], path: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("hub.wire.codec.SMALL_BYTES", 2000)
    monkeypatch.setattr("hub.wire.codec.read_map.__defaults__", (2000,))
    world = new_world(max_body_bytes=2000, max_bundle_bytes=2000)
    body = packed({"object_ids": [ID] * 40, "objects": [], "bundle": {}, "want": [ID] * 40})
    with Unchanged(world):
        refused(send(world, path, body), 413, "2000", "push in steps" if path == "/push" else "smaller")


@pytest.mark.parametrize("path", MAPS + STREAMS)
def test_body_that_says_it_is_over_the_cap_is_refused_unread(world: World, path: str) -> None:
    length = 2**40
    with Unchanged(world):
        answer = send(
            world, path, None, input_stream=io.BytesIO(b"\x80"), environ_overrides={"CONTENT_LENGTH": str(length)}
        )
        refused(answer, 413, str(length))


@pytest.mark.parametrize("path", ["/filter-objects", *STREAMS])
def test_body_of_unknown_length_is_read_up_to_the_cap(new_world: Callable[..., World], path: str) -> None:
    """As a server hands on a chunked one."""
    world = new_world(max_body_bytes=2000, max_bundle_bytes=2000)
    body = io.BytesIO(packed({"objects": [{"object_id": ID, "content": b"x" * 2000}]}))
    chunked = {"wsgi.input_terminated": True, "CONTENT_LENGTH": ""}
    with Unchanged(world):
        refused(send(world, path, None, input_stream=body, environ_overrides=chunked), 413, "2000")


def test_pack_over_the_cap_is_refused_before_it_moves(new_world: Callable[..., World]) -> None:
    world = new_world(max_mpack_bytes=1000)
    data = {"mpack_id": ID, "size": 1001, "branch": "main", "head": ID}
    with Unchanged(world):
        refused(world.post("/push/mpack/presign", data), 413, "1001", "1000", "smaller steps")


def test_pack_over_the_cap_is_refused_and_removed_when_it_was_put_past_the_hub(
    new_world: Callable[..., World],
) -> None:
    """A presigned URL does not limit the size."""
    world = new_world(max_mpack_bytes=1000)
    raw = b"x" * 1001
    mpack_id = hashlib.sha256(raw).hexdigest()
    with Unchanged(world):
        world.archive.put(f"staging/{world.repository_id}/{mpack_id}", raw)
        data = {"mpack_key": f"mpacks/{mpack_id}", "branch": "main", "head": ID}
        refused(world.post("/push/mpack", data), 413, "1001", "1000")
    assert list(world.archive.list()) == []


def upload_url(world: World, raw: bytes, **changes: Any) -> str:
    data = {"mpack_id": hashlib.sha256(raw).hexdigest(), "size": len(raw), "branch": "main", "head": ID}
    upload = world.post("/push/mpack/presign", data | changes).get_json()["upload"]
    assert upload["method"] == "PUT"
    return str(upload["url"])


def test_upload_of_other_bytes_is_refused(world: World) -> None:
    url = upload_url(world, b"announced")
    with Unchanged(world):
        refused(world.client.put(url, data=b"something"), 422, "body", "SHA-256")
        refused(world.client.put(url, data=b"announce"), 422, "body", "8", "9")
        refused(world.client.put(url, data=b"announced!"), 413, "9")
        refused(world.client.put(url, data=b""), 422, "0", "9")


@pytest.mark.parametrize("where", ["uploads", "downloads"])
def test_forged_url_is_refused(world: World, history: History, where: str) -> None:
    world.push_mpack(history, history.line(1)[0])
    world.drain()
    upload = upload_url(world, b"announced")
    download = world.post("/fetch/mpack", {}).get_json()["url"]
    right, other = (upload, download) if where == "uploads" else (download, upload)
    token = right.rpartition("/")[2]
    method = "PUT" if where == "uploads" else "GET"
    forged = [
        other.rpartition("/")[2],
        *(token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :] for place in (10, 20, -9)),
        "x",
        ".",
        TimestampSigner("y" * 32, salt=f"packhouse.{UPLOAD if where == 'uploads' else DOWNLOAD}")
        .sign(token.rsplit(".", 2)[0])
        .decode(),
    ]
    with Unchanged(world):
        for item in forged:
            refused(world.client.open(f"/-/{where}/{item}", method=method, data=b"announced"), 404, "URL")
    assert world.client.open(right, method=method, data=b"announced").status_code == 200


@pytest.mark.parametrize("where", ["uploads", "downloads"])
def test_expired_url_is_refused(
    new_world: Callable[..., World], history: History, where: str, monkeypatch: Any
) -> None:
    world = new_world(upload_seconds=60, download_seconds=60)
    world.push_mpack(history, history.line(1)[0])
    world.drain()
    upload, download = upload_url(world, b"announced"), world.post("/fetch/mpack", {}).get_json()["url"]
    now = TimestampSigner("-").get_timestamp()
    monkeypatch.setattr(TimestampSigner, "get_timestamp", lambda _: now + 62)
    with Unchanged(world):
        if where == "uploads":
            refused(world.client.put(upload, data=b"announced"), 404, "not any more")
        else:
            refused(world.client.get(download), 404, "not any more")


@pytest.mark.parametrize("path", MAPS + STREAMS)
def test_body_shorter_than_its_length_is_refused(world: World, path: str) -> None:
    body = packed({"objects": []})
    with Unchanged(world):
        answer = send(
            world, path, None, input_stream=io.BytesIO(body), environ_overrides={"CONTENT_LENGTH": str(len(body) + 10)}
        )
        assert answer.status_code in (400, 422)


def test_upload_shorter_than_its_length_is_refused(world: World) -> None:
    url = upload_url(world, b"announced")
    with Unchanged(world):
        answer = world.client.put(url, input_stream=io.BytesIO(b"annou"), environ_overrides={"CONTENT_LENGTH": "9"})
        assert answer.status_code in (400, 422)


class BrokenBody(io.BytesIO):
    """As gunicorn hands on a body whose chunks are none: some bytes, then an OSError."""

    def read(self, size: int | None = -1, /) -> bytes:
        if chunk := super().read(size):
            return chunk
        raise OSError("Invalid chunk size: b'zz'")


@pytest.mark.parametrize("path", [*MAPS, *STREAMS, "/releases", "/tags"])
def test_body_that_breaks_off_is_refused(world: World, path: str) -> None:
    chunked = {"wsgi.input_terminated": True, "CONTENT_LENGTH": ""}
    with Unchanged(world):
        for start in (b"", b"\x81", packed({"objects": []})):
            refused(send(world, path, None, input_stream=BrokenBody(start), environ_overrides=chunked), 422, "body")


def test_length_that_is_no_number_is_no_length(world: World) -> None:
    with Unchanged(world):
        answer = send(world, "/push/objects", b"", environ_overrides={"CONTENT_LENGTH": "many"})
        assert answer.status_code in (400, 422)


def test_store_that_does_not_answer_is_a_503_and_stores_no_row(
    new_world: Callable[..., World], history: History
) -> None:
    def refuse(op: str, key: str, phase: str) -> None:
        if op == "put":
            raise Unavailable(key)

    world = new_world(archive=FaultyStore(MemoryStore(), hook=refuse))
    tip = history.line(1)[0]
    with Unchanged(world):
        answer = world.push_mpack(history, tip)
        refused(answer, 503, "nothing was changed")
        assert int(answer.headers["Retry-After"]) > 0
        refused(world.push_muse(history, tip), 422, "never uploaded")


@pytest.mark.parametrize("accept", [MUSE_ACCEPT, "application/json"])
def test_unknown_path_and_method_are_said_in_the_callers_form(world: World, accept: str) -> None:
    for method, path, status in (("GET", "/alice/data/nothing", 404), ("GET", "/alice/data/push", 405)):
        refused(world.client.open(path, method=method, headers={"Accept": accept}), status)
