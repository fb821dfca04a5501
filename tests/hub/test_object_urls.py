"""The hub's own URLs for single objects: each for one object and one caller, and for a while; nothing else gets in."""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgpack
import pytest
from itsdangerous import TimestampSigner
from sqlalchemy import text

from hub import records
from hub.accounts import create_token, grant
from hub.auth import Right
from hub.gc import Ages, collect
from hub.keys import upload_key
from hub.wire.signed import OBJECT
from storage import NotFound, Store
from tests.hub.offers import Unchanged, refused
from tests.hub.world import History, World

pytestmark = pytest.mark.integration

LARGE = bytes(range(256)) * 400
LARGE_ID = records.object_id(LARGE)
MIB = 1024 * 1024


def object_url(world: World, object_id: str = LARGE_ID, *, token: str | None = "") -> str:
    asked = world.post("/presign", {"object_ids": [object_id], "direction": "put"}, muse=True, token=token)
    return str(msgpack.unpackb(asked.data)["presigned"][object_id])


class Zeros(io.RawIOBase):
    """A body of so many zero bytes, none of which is there before it is read."""

    def __init__(self, size: int) -> None:
        self._left = size

    def readinto(self, buffer: Any, /) -> int:
        taken = min(len(buffer), self._left, 64 * 1024)
        buffer[:taken] = bytes(taken)
        self._left -= taken
        return taken


def zeros(size: int) -> dict[str, Any]:
    """A request with such a body."""
    return {"wsgi.input": Zeros(size), "CONTENT_LENGTH": str(size)}


def test_other_bytes_than_announced_are_refused_at_once(world: World) -> None:
    url = object_url(world)
    with Unchanged(world):
        refused(world.client.put(url, data=b"other bytes"), 422, "body", "SHA-256")
        refused(world.client.put(url, data=b""), 422, "body", "SHA-256")
        cut = {"CONTENT_LENGTH": str(len(LARGE))}
        answer = world.client.put(url, input_stream=io.BytesIO(LARGE[:-1]), environ_overrides=cut)
        assert answer.status_code in (400, 422)
    assert world.client.put(url, data=LARGE).status_code == 200


def test_what_was_refused_leaves_no_part_in_the_store(new_world: Callable[..., World], s3_store: Store) -> None:
    world = new_world(archive=s3_store, presign=False)
    size = 20 * MIB
    answer = world.client.put(object_url(world), environ_overrides=zeros(size))
    refused(answer, 422, "SHA-256")
    key = upload_key(world.repository_id, LARGE_ID)
    assert [upload for upload in s3_store.list_uploads(key) if upload.key == key] == []
    with pytest.raises(NotFound):
        s3_store.head(key)


def test_what_a_killed_hub_left_of_an_upload_goes_after_a_day(new_world: Callable[..., World], s3_store: Store) -> None:
    world = new_world(archive=s3_store, presign=False)
    key = upload_key(world.repository_id, LARGE_ID)
    upload_id = s3_store.create_upload(key)
    s3_store.put_part(key, upload_id, 1, LARGE)
    collect(world.hub.services)
    assert [found.upload_id for found in s3_store.list_uploads(key)] == [upload_id]
    collect(world.hub.services, ages=Ages(uploads=timedelta(minutes=-1)))
    assert list(s3_store.list_uploads(key)) == []


def test_body_above_what_the_client_can_send_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hub.wire.transfer.UPLOAD_BYTES", len(LARGE) - 1)
    with Unchanged(world):
        refused(world.client.put(object_url(world), data=LARGE), 413, str(len(LARGE)), str(len(LARGE) - 1))
        chunked = {"wsgi.input_terminated": True, "HTTP_TRANSFER_ENCODING": "chunked"}
        answer = world.client.put(object_url(world), input_stream=io.BytesIO(LARGE), environ_overrides=chunked)
        refused(answer, 413, str(len(LARGE) - 1))


def test_forged_url_is_refused(world: World, history: History) -> None:
    mpack_id, raw = history.mpack(history.line(1))
    asked = {"mpack_id": mpack_id, "size": len(raw), "branch": "main", "head": mpack_id}
    pack_url = str(world.post("/push/mpack/presign", asked).get_json()["upload"]["url"])
    url = object_url(world)
    token = url.rpartition("/")[2]
    other_key = TimestampSigner("y" * 32, salt=f"packhouse.{OBJECT}").sign(token.rsplit(".", 2)[0]).decode()
    changed = [token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :] for place in (10, 20, -9)]
    with Unchanged(world):
        for forged in [pack_url.rpartition("/")[2], other_key, *changed, "x", "."]:
            refused(world.client.put(f"/-/objects/{forged}", data=LARGE), 404, "URL")
        refused(world.client.put(f"/-/uploads/{token}", data=LARGE), 404, "URL")
    assert world.client.put(url, data=LARGE).status_code == 200


def test_expired_url_is_refused(new_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> None:
    world = new_world(upload_seconds=60)
    url = object_url(world)
    now = TimestampSigner("-").get_timestamp()
    monkeypatch.setattr(TimestampSigner, "get_timestamp", lambda _: now + 62)
    with Unchanged(world):
        refused(world.client.put(url, data=LARGE), 404, "not any more")


ENDS = {
    "token revoked": "UPDATE hub.token SET revoked_at = now() WHERE label = 'this'",
    "token expired": "UPDATE hub.token SET expires_at = now() WHERE label = 'this'",
    "token deleted": "DELETE FROM hub.token WHERE label = 'this'",
    "role lowered": "UPDATE hub.membership SET role = 'read'",
    "role removed": "DELETE FROM hub.membership",
    "repository deleted": "UPDATE hub.repository SET deleted_at = now()",
}


@pytest.mark.parametrize("how", ENDS)
def test_url_ends_with_the_right_to_write(world: World, how: str) -> None:
    world.user("writer")
    with world.hub.services.sessions.begin() as session:
        grant(session, "alice/data", "writer", "write")
        token = create_token(session, "writer", label="this", scope=Right.WRITE)[1]
    url, unrelated = object_url(world, token=token), object_url(world)
    with world.hub.services.sessions.begin() as session:
        session.execute(text(ENDS[how]))
    refused(world.client.put(url, data=LARGE), 404, "not any more")
    still = world.client.put(unrelated, data=LARGE).status_code
    assert still == (404 if how == "repository deleted" else 200)


def test_large_object_is_taken_in_little_memory(new_world: Callable[..., World], s3_store: Store) -> None:
    world = new_world(archive=s3_store, presign=False)
    size = 60 * MIB
    zeros_id = "cf5ac69ca412f9b3b1a8b8de27d368c5c05ed4b1b6aa40e6c38d9cbf23711342"
    url = object_url(world, zeros_id)
    tracemalloc.start()
    try:
        answer = world.client.put(url, environ_overrides=zeros(size))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert answer.get_json() == {"size": size}
    assert peak < 40 * MIB, f"{peak:,} bytes at the peak"
    said: dict[str, Any] = msgpack.unpackb(world.post("/filter-objects", {"object_ids": [zeros_id]}, muse=True).data)
    assert said == {"missing": []}
