"""Small bodies that would be huge in memory: refused, or passed over, before anything is built from them."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import msgpack
import pytest

from hub.models import Commit
from hub.records import EMPTY_OBJECT_ID
from tests.hub.offers import Offer, Unchanged, commit, push, refused, snapshot
from tests.hub.world import MSGPACK, MUSE_ACCEPT, World

pytestmark = pytest.mark.integration

MIB = 1024 * 1024
ID = "ab" * 32
TREE = snapshot({})


def of(count: int, item: bytes) -> bytes:
    """A list of `count` times the same item."""
    return b"\xdd" + count.to_bytes(4, "big") + item * count


def map_of(**values: bytes) -> bytes:
    """A map with values that are encoded already."""
    packer = msgpack.Packer()
    return bytes(packer.pack_map_header(len(values))) + b"".join(
        msgpack.packb(key) + raw for key, raw in values.items()
    )


def packed(record: dict[str, Any], **others: bytes) -> bytes:
    return map_of(**{key: msgpack.packb(value) for key, value in record.items()} | others)


MAPS = of(MIB, b"\x80")
NILS = of(MIB, b"\xc0")
PAIRS = b"\xdf" + (MIB // 2).to_bytes(4, "big") + b"".join(b"\xa4%04x\x80" % (n & 0xFFFF) for n in range(MIB // 2))
NESTED = b"\x91" * 900 + MAPS
BOMBS = {"empty maps": MAPS, "nils": NILS, "a map of maps": PAIRS, "deep": NESTED}
CHILD = packed(commit(TREE))


def bodies(bomb: bytes) -> dict[str, tuple[str, bytes]]:
    """Path and body for each place where a bomb may stand."""
    one = b"\x91"
    bundle = {"commits": one + CHILD, "snapshots": one + packed(TREE)}
    rest = {"branch": msgpack.packb("main"), "force": b"\xc2"}
    bad_tree = packed({key: TREE[key] for key in ("snapshot_id", "created_at")}, manifest=bomb)
    bad_author = packed(commit(TREE), author=bomb)
    bad_time = packed({key: TREE[key] for key in ("snapshot_id", "manifest")}, created_at=bomb)
    return {
        "objects": ("/push/objects", map_of(objects=bomb)),
        "an object": ("/push/objects", map_of(objects=one + map_of(object_id=bomb, content=b"\xc4\x00"))),
        "content": ("/push/objects", map_of(objects=one + map_of(object_id=msgpack.packb(ID), content=bomb))),
        "commits": ("/push", map_of(bundle=map_of(commits=bomb), **rest)),
        "a commit": ("/push", map_of(bundle=map_of(commits=one + bomb), **rest)),
        "author": ("/push", map_of(bundle=map_of(**bundle | {"commits": one + bad_author}), **rest)),
        "snapshots": ("/push", map_of(bundle=map_of(snapshots=bomb), **rest)),
        "manifest": ("/push", map_of(bundle=map_of(**bundle | {"snapshots": one + bad_tree}), **rest)),
        "created_at": ("/push", map_of(bundle=map_of(**bundle | {"snapshots": one + bad_time}), **rest)),
        "branch": ("/push", map_of(bundle=map_of(**bundle), branch=bomb)),
        "want": ("/fetch", map_of(want=bomb)),
        "have": ("/negotiate", map_of(want=b"\x90", have=bomb)),
        "object_ids": ("/filter-objects", map_of(object_ids=bomb)),
        "presigned": ("/presign", map_of(object_ids=bomb)),
        "tags": ("/tags", map_of(tags=bomb)),
        "a key of a small body": ("/fetch", b"\x81" + bomb + b"\xc0"),
    }  # fmt: skip


def send(world: World, path: str, body: bytes, kind: str = MSGPACK) -> Any:
    headers = world.headers() | {"Accept": MUSE_ACCEPT}
    return world.client.post(world.base + path, data=body, content_type=kind, headers=headers)


def peak_of(world: World, path: str, body: bytes, kind: str = MSGPACK) -> tuple[Any, int]:
    """The answer, and how far memory rose above what it was, in bytes."""
    gc.collect()
    tracemalloc.start()
    try:
        answer = send(world, path, body, kind)
        return answer, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("place", bodies(b"\xc0"))
def test_bomb_is_refused_in_little_memory(world: World, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoded as a whole, a million empty maps would take 72 MB."""
    monkeypatch.setattr("hub.wire.codec.ITEMS", 20_000)  # tracing memory makes the counting slow
    with Unchanged(world):
        for name, bomb in BOMBS.items():
            path, body = bodies(bomb)[place]
            answer, peak = peak_of(world, path, body)
            assert answer.status_code in (413, 422), (name, answer.data)
            refused(answer, answer.status_code)
            assert peak < 3 * len(body) + 12 * MIB, f"{name}: {peak / MIB:.0f} MiB"


MANY = MIB // 8
JSON_BOMBS = {
    "maps": b'{"want": [' + b"{}," * MANY + b"{}]}",
    "numbers": b'{"want": [' + b"1," * MANY + b"1]}",
    "deep lists": b'{"want": ' + b"[" * MANY + b"]" * MANY + b"}",
    "deep maps": b'{"a":' * MANY + b"1" + b"}" * MANY,
    "a long number": b'{"size": ' + b"9" * MANY + b"}",
}
JSON_ROUTES = [
    "/fetch", "/negotiate", "/filter-objects", "/presign", "/push/mpack/presign", "/push/mpack", "/push/mpack/abort",
    "/fetch/mpack", "/releases", "/tags",
]  # fmt: skip


@pytest.mark.parametrize("path", JSON_ROUTES)
def test_json_bomb_is_refused_in_little_memory(world: World, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hub.wire.codec.ITEMS", 20_000)
    with Unchanged(world):
        for name, bomb in JSON_BOMBS.items():
            answer, peak = peak_of(world, path, bomb, "application/json")
            assert answer.status_code in (413, 422), (name, answer.data)
            refused(answer, answer.status_code)
            assert peak < 3 * len(bomb) + 2 * MIB, f"{name}: {peak / MIB:.1f} MiB"


def test_json_bomb_is_too_large_for_the_api(world: World) -> None:
    for bomb in JSON_BOMBS.values():
        for method, path in (("POST", ""), ("PATCH", "/alice/data"), ("PUT", "/alice/data/collaborators/bob")):
            answer = world.client.open(
                f"/api/repositories{path}", method=method, data=bomb, content_type="application/json",
                headers=world.headers(),
            )  # fmt: skip
            refused(answer, 413)


@pytest.mark.parametrize("name", BOMBS)
def test_delta_of_any_form_is_kept_and_never_decoded(world: World, name: str) -> None:
    """It is the client's own; nothing of ours needs what is in it."""
    raw = packed(commit(TREE), structured_delta=BOMBS[name])
    bundle = map_of(commits=b"\x91" + raw, snapshots=b"\x91" + packed(TREE))
    answer, peak = peak_of(world, "/push", map_of(bundle=bundle, branch=msgpack.packb("main")))
    assert answer.status_code == 200, answer.data
    assert peak < 12 * len(raw) + 12 * MIB, f"{peak / MIB:.0f} MiB"
    with world.hub.services.sessions() as session:
        assert session.query(Commit).one().record == raw


def test_record_above_its_cap_is_refused_while_it_comes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hub.wire.bundle.RECORD_BYTES", MIB // 4)
    raw = packed(commit(TREE), structured_delta=NILS)
    bundle = map_of(commits=b"\x91" + raw, snapshots=b"\x91" + packed(TREE))
    with Unchanged(world):
        answer, peak = peak_of(world, "/push", map_of(bundle=bundle, branch=msgpack.packb("main")))
        refused(answer, 413, "record")
        assert peak < 4 * MIB


def test_records_that_are_large_together_are_taken(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cap is one of each record: every commit of a large repository brings a whole manifest."""
    monkeypatch.setattr("hub.wire.bundle.RECORD_BYTES", 64 * 1024)
    snapshots = [snapshot({f"{number}/{name:03}": EMPTY_OBJECT_ID for name in range(400)}) for number in range(48)]
    commits = [commit(snapshots[0])]
    for tree in snapshots[1:]:
        commits.append(commit(tree, commits[-1]["commit_id"]))
    offer = Offer(commits[::-1], snapshots)
    assert len(packed(snapshots[0])) < 64 * 1024 < len(msgpack.packb(snapshots)) - MIB
    answer = push(world, "muse", offer)
    assert answer.status_code == 200, answer.data
    assert world.heads() == {"main": offer.tip}


def test_what_is_not_known_is_passed_over(world: World) -> None:
    bundle = map_of(
        zzz=MAPS, commits=b"\x91" + CHILD, snapshots=b"\x91" + packed(TREE, extra=NESTED), objects=b"\x90", tags=NILS
    )
    answer, peak = peak_of(world, "/push", map_of(hint=MAPS, bundle=bundle, branch=msgpack.packb("main")))
    assert answer.status_code == 200, answer.data
    assert peak < 24 * MIB


def test_flat_manifest_of_many_files_is_taken(world: World) -> None:
    manifest = {f"dir/{number:06}.txt": EMPTY_OBJECT_ID for number in range(30_000)}
    tree = snapshot(manifest)
    assert push(world, "muse", Offer([commit(tree)], [tree])).status_code == 200


@pytest.mark.parametrize(
    "manifest", [{"a": {}}, {"a": {"b": ID}}, {"a": [ID]}, {"a": None}, {"a": 1}, {"a": b"x"}, [], None, "a", ID]
)
def test_manifest_of_another_form_is_refused(world: World, manifest: Any) -> None:
    with Unchanged(world):
        tree = {**TREE, "manifest": manifest}
        refused(push(world, "muse", Offer([commit(TREE)], [tree])), 422, "snapshots[0]")
