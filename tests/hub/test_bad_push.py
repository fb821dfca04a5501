"""Pushes that break a rule: refused with status and sentence, by both transports, and nothing of them is stored."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from hub import records
from hub.pack.format import Kind
from tests.hub.offers import Offer, Unchanged, commit, push, refused, snapshot, stage
from tests.hub.pack.build import Parts, block_of
from tests.hub.views import fetch_mpack
from tests.hub.world import History, World

pytestmark = pytest.mark.integration

NOWHERE = "ab" * 32
HELLO = records.object_id(b"hello")
TREE = snapshot({"file.txt": HELLO})
OTHER = snapshot({"other.txt": HELLO})


@pytest.fixture(params=["mpack", "muse"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def check_refused(world: World, transport: str, offer: Offer, status: int, *words: str) -> None:
    if transport == "muse":
        stage(world, offer)
    with Unchanged(world):
        refused(push(world, transport, offer), status, *words)


def plain(manifest: dict[str, str] | None = None, **changes: Any) -> Offer:
    """One root commit of one file, with `changes` to the commit record."""
    tree = TREE if manifest is None else snapshot(manifest)
    return Offer([commit(tree, **changes)], [tree], [b"hello"])


def two_tips() -> Offer:
    return Offer([commit(TREE, message="a"), commit(TREE, message="b")], [TREE], [b"hello"])


ROOT = commit(TREE)
BAD: dict[str, tuple[Callable[[], Offer], tuple[str, ...]]] = {
    "wrong commit id": (lambda: plain(commit_id=NOWHERE), ("commits[", "commit_id", NOWHERE)),
    "message changed under the commit id": (
        lambda: Offer([{**ROOT, "message": "forged"}], [TREE], [b"hello"]),
        ("commits[", "commit_id"),
    ),
    "wrong snapshot id": (
        lambda: Offer([commit(TREE)], [{**TREE, "manifest": {"forged.txt": HELLO}}], [b"hello"]),
        ("snapshots[", "snapshot_id"),
    ),
    "unknown parent": (
        lambda: Offer([commit(TREE, NOWHERE)], [TREE], [b"hello"]),
        (NOWHERE, "unknown here", "muse remote remove"),
    ),
    "unknown second parent": (
        lambda: Offer([commit(TREE, ROOT["commit_id"], NOWHERE), ROOT], [TREE], [b"hello"]),
        (NOWHERE, "unknown here"),
    ),
    "second parent without a first": (
        lambda: Offer([{**ROOT, "parent2_commit_id": NOWHERE}], [TREE], [b"hello"]),
        ("parent2_commit_id",),
    ),
    "missing snapshot": (lambda: Offer([commit(OTHER)], [TREE], [b"hello"]), (OTHER["snapshot_id"], "neither sent")),
    "missing object": (
        lambda: plain({"file.txt": HELLO, "lost.txt": NOWHERE}),
        (NOWHERE, "never uploaded"),
    ),
    "no commits": (lambda: Offer([], [TREE], [b"hello"]), ("exactly one newest commit", "0")),
    "two tips": (two_tips, ("exactly one newest commit", "2")),
    "NUL in the message": (lambda: plain(message="a\0b"), ("message", "NUL")),
    "NUL in the author": (lambda: plain(author="a\0b"), ("author", "NUL")),
    "id in capitals": (lambda: plain(parent_commit_id=NOWHERE.upper()), ("parent_commit_id", "64")),
    "id too short": (lambda: plain(parent_commit_id="ab"), ("parent_commit_id", "64")),
    "id with a newline": (lambda: plain(parent_commit_id=NOWHERE + "\n"), ("parent_commit_id", "64")),
    "author that is no text": (lambda: plain(author=7), ("author", "string")),
    "path that is also a folder": (lambda: plain({"a": HELLO, "a/b": HELLO}), ("manifest", "directory")),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_records_are_refused(world: World, transport: str, name: str) -> None:
    make, words = BAD[name]
    check_refused(world, transport, make(), 422, *words)


TIMES = [
    "2026-03-24T12:00:00Z",
    "2026-03-24T12:00:00",
    "2026-03-24 12:00:00+00:00",
    "2026-03-24T12:00+00:00",
    "20260324T120000+0000",
    "2026-03-24T12:00:00.000000+00:00",
    "2026-03-24T12:00:00.5+00:00",
    "2026-02-30T12:00:00+00:00",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:00:00-14:00",
    "yesterday",
    "",
]
PATHS = [
    "", "/", "/etc/passwd", "//a", ".", "..", "./a", "../up", "a/.", "a/..", "a/./b", "a/../b", "a//b", "a/", "../../x",
    ".muse", ".muse/config", "sub/.muse/x", "sub/.muse", ".MUSE/x", "sub/.Muse", "a\0b", "\0", "a/\0", "x" * 4097,
]  # fmt: skip


def test_time_that_is_not_canonical_is_refused(world: World, transport: str) -> None:
    for at in TIMES:
        check_refused(world, transport, plain(at=at), 422, "committed_at", "ISO 8601")


def test_time_of_any_offset_is_kept_as_it_is(world: World, transport: str) -> None:
    for number, offset in enumerate(["+20:00", "-23:59", "+05:45", "+00:00:30"]):
        offer = plain(at=f"2026-03-24T12:00:00{offset}")
        offer.branch = f"b{number}"
        if transport == "muse":
            stage(world, offer)
        assert push(world, transport, offer).status_code == 200
        world.drain()
        assert fetch_mpack(world, [offer.tip]).order


def test_bad_path_is_refused(world: World, transport: str) -> None:
    for path in PATHS:
        check_refused(world, transport, plain({path: HELLO}), 422, "snapshots[")


@pytest.mark.parametrize(("first", "second"), [("main", "main/sub"), ("a/b/c", "a"), ("a/b/c", "a/b")])
def test_branch_that_is_another_ones_folder_is_refused(
    world: World, history: History, transport: str, first: str, second: str
) -> None:
    ids = history.line(2)
    assert world.push_mpack(history, ids[0], first).status_code == 200
    world.post("/push/objects", {"objects": chunk(history, ids[1])}, muse=True)
    with Unchanged(world):
        answer = (world.push_mpack if transport == "mpack" else world.push_muse)(history, ids[1], second)
        refused(answer, 422, "branch", first, "folder")


def test_branch_that_only_begins_like_another_is_taken(world: World, history: History, transport: str) -> None:
    ids = history.line(2)
    send = world.push_mpack if transport == "mpack" else world.push_muse
    assert send(history, ids[0], "main").status_code == 200
    assert send(history, ids[1], "main2/sub").status_code == 200


def chunk(history: History, tip: str) -> list[dict[str, Any]]:
    """A commit's objects as Part A sends them."""
    return [{"object_id": item, "content": history.contents[item]} for item in history.objects_of([tip])]


def diverged(world: World) -> Offer:
    """An offer that is no child of the branch's head."""
    root = commit(TREE)
    pushed = push(world, "mpack", Offer([commit(TREE, root["commit_id"], message="theirs"), root], [TREE], [b"hello"]))
    assert pushed.status_code == 200
    return Offer([commit(TREE, root["commit_id"], message="ours")], [])


def test_push_that_is_no_fast_forward_is_a_conflict(world: World, transport: str) -> None:
    offer = diverged(world)
    check_refused(world, transport, offer, 409, "main", "not a fast-forward", "Pull first")


def test_push_of_an_ancestor_is_a_conflict(world: World, transport: str) -> None:
    diverged(world)
    check_refused(world, transport, Offer([ROOT], [TREE]), 409, "not a fast-forward")


@pytest.mark.parametrize("expected", [NOWHERE, None], ids=["another head", "no branch"])
def test_failed_lease_is_a_conflict_even_when_forced(world: World, expected: str | None) -> None:
    offer = diverged(world)
    offer.options = {"expected_head": expected, "force": True}
    check_refused(world, "mpack", offer, 409, "not where the push expects it")


def test_lease_on_a_branch_that_is_not_there_is_a_conflict(world: World) -> None:
    offer = plain()
    offer.options = {"expected_head": NOWHERE}
    check_refused(world, "mpack", offer, 409, "not where the push expects it")


def test_lease_that_holds_lets_the_push_through(world: World) -> None:
    offer = diverged(world)
    offer.options = {"expected_head": world.heads()["main"], "force": True}
    assert push(world, "mpack", offer).status_code == 200
    fresh = Offer([commit(TREE, message="fresh")], [TREE], branch="fresh", options={"expected_head": None})
    assert push(world, "mpack", fresh).status_code == 200


def test_lease_holds_where_the_branch_has_the_new_head_already(world: World) -> None:
    """The answer was lost, and the next try packs anew: without what has arrived by now."""
    offer = plain()
    offer.options = {"expected_head": None}
    assert push(world, "mpack", offer).status_code == 200
    offer.contents = []
    assert push(world, "mpack", offer).status_code == 200


def test_head_that_is_not_the_packs_is_refused(world: World) -> None:
    offer = plain()
    offer.head = NOWHERE
    check_refused(world, "mpack", offer, 422, "head")


def send_raw(world: World, raw: bytes, *, mpack_id: str | None = None) -> Any:
    return world.push_bytes(mpack_id or hashlib.sha256(raw).hexdigest(), raw, ROOT["commit_id"])


@pytest.mark.parametrize("cut", [1, 64, 300], ids="{} bytes short".format)
def test_truncated_pack_is_refused(world: World, cut: int) -> None:
    _, raw = plain().mpack()
    with Unchanged(world):
        refused(send_raw(world, raw[:-cut]), 422, "mpack")


def test_damaged_pack_is_refused_wherever_the_damage_is(world: World) -> None:
    _, raw = plain().mpack()
    with Unchanged(world):
        for place in range(0, len(raw), 29):
            damaged = bytearray(raw)
            damaged[place] ^= 1
            refused(send_raw(world, bytes(damaged)), 422)


def test_pack_with_another_digest_is_refused(world: World) -> None:
    _, raw = plain().mpack()
    with Unchanged(world):
        refused(send_raw(world, raw, mpack_id=NOWHERE), 422, "SHA-256")


def test_object_with_the_wrong_id_is_refused_in_a_pack(world: World) -> None:
    parts = Parts.of(plain().mpack()[1])
    number = sum(row.entry_count for row in parts.rows[: block_of(parts, Kind.OBJECT, shared=False)])
    parts.ids[number] = bytes.fromhex(NOWHERE)
    with Unchanged(world):
        refused(send_raw(world, parts.seal()), 422, "objects[", NOWHERE)


def test_object_with_the_wrong_id_is_refused_in_a_chunk(world: World) -> None:
    good = {"object_id": HELLO, "content": b"hello"}
    bad = {"object_id": NOWHERE, "content": b"hello"}
    with Unchanged(world):
        refused(world.post("/push/objects", {"objects": [good, bad]}, muse=True), 422, NOWHERE)
        refused(world.post("/push/objects", {"objects": [bad, good]}, muse=True), 422, NOWHERE)


def test_wrong_content_is_refused_though_the_object_is_held(world: World) -> None:
    assert push(world, "mpack", plain()).status_code == 200
    with Unchanged(world):
        bad = {"objects": [{"object_id": HELLO, "content": b"poison"}]}
        refused(world.post("/push/objects", bad, muse=True), 422, HELLO)


def test_wrong_content_is_refused_though_the_right_one_follows(world: World) -> None:
    both = [{"object_id": HELLO, "content": content} for content in (b"poison", b"hello")]
    with Unchanged(world):
        refused(world.post("/push/objects", {"objects": both}, muse=True), 422, HELLO)


def test_pack_that_was_never_uploaded_is_refused(world: World) -> None:
    data = {"mpack_key": f"mpacks/{NOWHERE}", "branch": "main", "head": NOWHERE}
    with Unchanged(world):
        refused(world.post("/push/mpack", data), 422, "mpack_key", "not uploaded")


def test_object_over_the_cap_is_refused(new_world: Callable[..., World], transport: str) -> None:
    world = new_world(max_object_bytes=1000)
    large = b"x" * 1001
    with Unchanged(world):
        if transport == "mpack":
            tree = snapshot({"large": records.object_id(large)})
            refused(push(world, "mpack", Offer([commit(tree)], [tree], [large])), 413, "1000")
        else:
            objects = {"objects": [{"object_id": records.object_id(large), "content": large}]}
            refused(world.post("/push/objects", objects, muse=True), 413, "1000")


def test_refusal_by_part_b_says_its_code(world: World) -> None:
    offer = plain(commit_id=NOWHERE)
    assert push(world, "mpack", offer).get_json()["error"] == "INVALID"
    assert push(world, "mpack", diverged(world)).get_json()["error"] == "DIVERGED"


def test_time_is_stored_as_the_instant_that_it_names(world: World) -> None:
    assert push(world, "mpack", plain(at="2026-03-24T12:00:00+20:00")).status_code == 200
    with world.hub.services.sessions() as session:
        at = session.connection().exec_driver_sql("SELECT committed_at AT TIME ZONE 'UTC' FROM hub.commit").scalar_one()
    assert at.isoformat() == "2026-03-23T16:00:00"
