"""A pack on its way in: whole or in parts, interrupted, shared, wrong."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hub.keys import archive_key, staging_key
from hub.pack_upload import abort_old_uploads
from storage import NotFound, Store
from tests.hub.offers import refused
from tests.hub.views import fetch_mpack, model
from tests.hub.world import History, World

pytestmark = pytest.mark.integration

MIB = 1024 * 1024
PART = 5 * MIB


@pytest.fixture(params=["relayed", "presigned"])
def parts_world(request: pytest.FixtureRequest, new_world: Callable[..., World]) -> World:
    """A hub where everything above a MiB goes in parts: through the hub, or straight to the real S3 server."""
    stores = {} if request.param == "relayed" else {"archive": request.getfixturevalue("s3_store")}
    return new_world(multipart_bytes=MIB, part_bytes=PART, **stores)


@pytest.fixture
def tip(history: History) -> str:
    """A commit of 11 MiB that no compressor makes smaller: three parts."""
    chance = random.Random(3)
    return history.commit({f"f{number}": chance.randbytes(11 * MIB // 4) for number in range(4)})


def presign(world: World, mpack_id: str, size: int, head: str, /, **more: Any) -> Any:
    data = {"mpack_id": mpack_id, "size": size, "branch": "main", "head": head}
    return world.post("/push/mpack/presign", data | more)


def put(world: World, link: dict[str, Any], content: bytes) -> int:
    """PUT to a link of the hub or of the store."""
    if "/-/" in link["url"]:
        return int(world.client.put(link["url"], data=content).status_code)
    import urllib3

    return int(urllib3.request("PUT", link["url"], body=content, retries=False).status)


def put_part(world: World, part: dict[str, Any], raw: bytes) -> int:
    return put(world, part, raw[part["offset"] : part["offset"] + part["size"]])


def push(world: World, mpack_id: str, head: str, **options: Any) -> Any:
    data = {"mpack_key": f"mpacks/{mpack_id}", "branch": "main", "head": head, "force": False}
    return world.post("/push/mpack", data | options)


def stays(world: World, mpack_id: str) -> bool:
    """Whether the upload of this pack is there, whole."""
    try:
        world.archive.head(staging_key(world.repository_id, mpack_id))
    except NotFound:
        return False
    return True


class TestParts:
    def test_pack_goes_up_in_parts_and_is_pushed(self, parts_world: World, history: History, tip: str) -> None:
        world = parts_world
        mpack_id, raw = history.mpack([tip])
        upload = presign(world, mpack_id, len(raw), tip).get_json()["upload"]
        assert (upload["part_size"], upload["arrived"]) == (PART, [])
        sizes = [(part["number"], part["offset"], part["size"]) for part in upload["parts"]]
        assert sizes == [(1, 0, PART), (2, PART, PART), (3, 2 * PART, len(raw) - 2 * PART)]
        assert datetime.fromisoformat(upload["expires_at"]) > datetime.now(UTC) + timedelta(hours=1)
        for part in reversed(upload["parts"]):
            assert put_part(world, part, raw) == 200
        assert presign(world, mpack_id, len(raw), tip).get_json()["upload"] is None
        assert push(world, mpack_id, tip).status_code == 200
        assert [stat.key for stat in world.archive.list()] == [archive_key(world.repository_id, mpack_id)]
        world.drain()
        assert fetch_mpack(world) == model(history, [tip])

    def test_interrupted_upload_goes_on_with_what_is_missing(
        self, parts_world: World, history: History, tip: str
    ) -> None:
        world = parts_world
        mpack_id, raw = history.mpack([tip])
        first = presign(world, mpack_id, len(raw), tip).get_json()["upload"]
        put_part(world, first["parts"][1], raw)
        # A part that was sent with other bytes than announced has not arrived.
        put(world, first["parts"][0], raw[:PART] if "/-/" in first["parts"][0]["url"] else raw[: PART - 1])
        again = presign(world, mpack_id, len(raw), tip).get_json()["upload"]
        assert again["upload_id"] == first["upload_id"]
        assert 2 in again["arrived"]
        assert 2 not in [part["number"] for part in again["parts"]]
        for part in again["parts"]:
            put_part(world, part, raw)
        assert presign(world, mpack_id, len(raw), tip).get_json()["upload"] is None
        assert push(world, mpack_id, tip).status_code == 200

    def test_push_before_the_last_part_says_what_to_do(self, parts_world: World, history: History, tip: str) -> None:
        mpack_id, raw = history.mpack([tip])
        upload = presign(parts_world, mpack_id, len(raw), tip).get_json()["upload"]
        put_part(parts_world, upload["parts"][0], raw)
        refused(push(parts_world, mpack_id, tip), 422, "mpack_key", "presign")
        assert presign(parts_world, mpack_id, len(raw), tip).get_json()["upload"]["arrived"] == [1]

    def test_wrong_bytes_are_removed_and_sent_again(self, parts_world: World, history: History, tip: str) -> None:
        world = parts_world
        mpack_id, raw = history.mpack([tip])
        for part in presign(world, mpack_id, len(raw), tip).get_json()["upload"]["parts"]:
            put(world, part, bytes(part["size"]))
        assert presign(world, mpack_id, len(raw), tip).get_json()["upload"] is None
        refused(push(world, mpack_id, tip), 422)
        assert not stays(world, mpack_id)
        assert len(presign(world, mpack_id, len(raw), tip).get_json()["upload"]["parts"]) == 3

    def test_abort_drops_what_has_arrived(self, parts_world: World, history: History, tip: str) -> None:
        world = parts_world
        mpack_id, raw = history.mpack([tip])
        upload = presign(world, mpack_id, len(raw), tip).get_json()["upload"]
        put_part(world, upload["parts"][0], raw)
        assert world.post("/push/mpack/abort", {"mpack_key": f"mpacks/{mpack_id}"}).status_code == 200
        assert list(world.archive.list_uploads()) == []
        assert put_part(world, upload["parts"][1], raw) == 404
        assert presign(world, mpack_id, len(raw), tip).get_json()["upload"]["arrived"] == []

    def test_old_unfinished_uploads_are_aborted_for_gc(self, parts_world: World, history: History, tip: str) -> None:
        world = parts_world
        mpack_id, raw = history.mpack([tip])
        presign(world, mpack_id, len(raw), tip)
        assert abort_old_uploads(world.archive, datetime.now(UTC) - timedelta(days=1)) == 0
        assert abort_old_uploads(world.archive, datetime.now(UTC) + timedelta(minutes=1)) == 1
        assert list(world.archive.list_uploads()) == []

    def test_only_some_parts_are_told_at_a_time(
        self, new_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("hub.pack_upload.PARTS_TOLD", 2)
        world = new_world(multipart_bytes=MIB, part_bytes=PART)
        told = presign(world, "ab" * 32, 100 * MIB, "cd" * 32).get_json()["upload"]["parts"]
        assert [part["number"] for part in told] == [1, 2]

    def test_parts_grow_where_there_would_be_too_many(self, new_world: Callable[..., World]) -> None:
        world = new_world(multipart_bytes=MIB, part_bytes=PART, max_mpack_bytes=10**12)
        upload = presign(world, "ab" * 32, 10**12, "cd" * 32).get_json()["upload"]
        assert upload["part_size"] * 10_000 >= 10**12

    def test_part_of_another_length_is_refused(self, new_world: Callable[..., World]) -> None:
        world = new_world(multipart_bytes=MIB, part_bytes=PART)
        part = presign(world, "ab" * 32, 6 * MIB, "cd" * 32).get_json()["upload"]["parts"][1]
        for length, status in ((MIB - 1, 422), (MIB + 1, 413)):
            refused(world.client.put(part["url"], data=bytes(length)), status)
        refused(world.client.put(part["url"][:-2] + "xx", data=bytes(MIB)), 404)


class TestShared:
    """An upload belongs to its pack, not to a client."""

    def test_pack_that_was_put_is_not_sent_again(self, world: World, history: History) -> None:
        """The client was killed between its upload and its push."""
        tip = history.line(1)[0]
        mpack_id, raw = history.mpack([tip])
        put(world, presign(world, mpack_id, len(raw), tip).get_json()["upload"], raw)
        assert presign(world, mpack_id, len(raw), tip).get_json()["upload"] is None
        assert push(world, mpack_id, tip).status_code == 200

    def test_refused_push_leaves_the_upload_to_the_next_one(self, world: World, history: History) -> None:
        """Another client that has sent the same pack, or the same one by force, needs no second upload."""
        old = history.line(2)[-1]
        assert world.push_mpack(history, old).status_code == 200
        root = history.commit({"b": b"new"}, message="new root")
        mpack_id, raw = history.mpack([root])
        put(world, presign(world, mpack_id, len(raw), root).get_json()["upload"], raw)
        refused(push(world, mpack_id, root), 409)
        assert presign(world, mpack_id, len(raw), root).get_json()["upload"] is None
        assert push(world, mpack_id, root, branch="other").status_code == 200
        assert push(world, mpack_id, root, force=True).status_code == 200
        assert not stays(world, mpack_id)

    def test_upload_replaced_after_its_verification_is_not_what_is_kept(
        self, new_world: Callable[..., World], history: History, s3_store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whoever holds the URL puts other bytes while the push is being checked."""
        world = new_world(archive=s3_store)
        tip = history.line(1)[0]
        mpack_id, raw = history.mpack([tip])
        put(world, presign(world, mpack_id, len(raw), tip).get_json()["upload"], raw)

        import hub.wire.mpack as route

        read_incoming = route.read_incoming

        def late(*arguments: Any, **named: Any) -> Any:
            s3_store.put(staging_key(world.repository_id, mpack_id), bytes(len(raw)))
            return read_incoming(*arguments, **named)

        monkeypatch.setattr(route, "read_incoming", late)
        assert push(world, mpack_id, tip).status_code == 200
        with s3_store.get(archive_key(world.repository_id, mpack_id)) as body:
            assert hashlib.sha256(b"".join(body)).hexdigest() == mpack_id


class TestLimits:
    """Refused at presign, before a byte moves."""

    def test_lease_that_does_not_hold(self, world: World, history: History) -> None:
        first, second, third = history.line(3)
        assert world.push_mpack(history, second).status_code == 200
        refused(presign(world, "ab" * 32, 100, third, expected_head=first), 409, "main")
        refused(presign(world, "ab" * 32, 100, third, expected_head=None), 409, "main")
        assert presign(world, "ab" * 32, 100, third, expected_head=second).status_code == 200
        assert presign(world, "ab" * 32, 100, third).status_code == 200

    def test_lease_of_a_push_that_was_done_before(self, world: World, history: History) -> None:
        """Its client lost the answer and asks again, after others have gone on."""
        first, second = history.line(2)
        mpack_id, raw = history.mpack([first])
        assert world.push_bytes(mpack_id, raw, first).status_code == 200
        assert world.push_mpack(history, second).status_code == 200
        asked = presign(world, mpack_id, len(raw), first, expected_head=None)
        assert (asked.status_code, asked.get_json()["upload"]) == (200, None)

    def test_branch_that_is_the_folder_of_another(self, world: World, history: History) -> None:
        tip = history.line(1)[0]
        assert world.push_mpack(history, tip, "a").status_code == 200
        refused(presign(world, "ab" * 32, 100, tip, branch="a/b"), 422, "branch", "folder")

    @pytest.mark.parametrize(
        ("change", "status", "word"),
        [
            ({"size": 5000}, 413, "4000"),
            ({"size": 0}, 422, "size"),
            ({"size": True}, 422, "size"),
            ({"branch": "a..b"}, 422, "branch"),
            ({"head": "xyz"}, 422, "head"),
            ({"mpack_id": "AB" * 32}, 422, "mpack_id"),
            ({"expected_head": "xyz"}, 422, "expected_head"),
        ],
    )
    def test_request_that_breaks_a_rule(
        self, new_world: Callable[..., World], change: dict[str, Any], status: int, word: str
    ) -> None:
        world = new_world(max_mpack_bytes=4000)
        refused(presign(world, "ab" * 32, 100, "cd" * 32, **change), status, word)
        assert list(world.archive.list()) == []
        assert list(world.archive.list_uploads()) == []
