from __future__ import annotations

import struct

import pytest

from hub.errors import Invalid
from hub.manifest import pack_rows
from hub.pack.snapshots import pack_snapshot, unpack_snapshots
from hub.records import object_id, snapshot_id
from tests.hub.pack.build import NOON, snapshot

X, Y = object_id(b"x"), object_id(b"y")
BASE = {f"{n:02}": X for n in range(10)}


def changes(put: dict[str, str], removed: bytes = b"", count: int | None = None) -> bytes:
    """A snapshot written as changes, by hand."""
    number = removed.count(b"\0") if count is None else count
    return b"\x01\x00" + pack_rows(put) + struct.pack("<II", number, len(removed)) + removed


def whole(manifest: dict[str, str]) -> tuple[str, bytes]:
    return snapshot_id(manifest), b"\x00\x00" + pack_rows(manifest)


def test_bytes_of_a_whole_snapshot() -> None:
    packed = pack_snapshot(snapshot({"a": X}), None)
    assert packed.hex() == "0019" + NOON.encode().hex() + "01000000" + "02000000" + "6100" + X


def test_bytes_of_changes() -> None:
    after = snapshot({**{path: X for path in BASE if path != "03"}, "05": Y})
    packed = pack_snapshot(after, BASE)
    expected = (
        "0119" + NOON.encode().hex() + "01000000" + "03000000" + "303500" + Y + "01000000" + "03000000" + "303300"
    )
    assert packed.hex() == expected
    assert list(unpack_snapshots([whole(BASE), (after.snapshot_id, packed)]))[1] == after


def test_many_changes_are_followed_as_few_are() -> None:
    manifest = {f"{n:04}": X for n in range(2_000)}
    told, raws = [snapshot(manifest)], [pack_snapshot(snapshot(manifest), None)]
    for count in (1, 255, 256, 257, 600):
        gone = sorted(manifest)[: count // 2]
        after = {path: X for path in manifest if path not in gone} | {f"{count}/{n}": Y for n in range(count // 2 + 1)}
        told.append(snapshot(after))
        raws.append(pack_snapshot(told[-1], manifest))
        manifest = after
    entries = [(item.snapshot_id, raw) for item, raw in zip(told, raws, strict=True)]
    assert list(unpack_snapshots(entries)) == told
    assert list(unpack_snapshots(entries, checked=True)) == told


def test_large_changes_are_written_whole() -> None:
    after = snapshot(dict.fromkeys(BASE, Y))
    assert pack_snapshot(after, BASE) == pack_snapshot(after, None)


def test_changes_need_a_snapshot_before_them() -> None:
    with pytest.raises(Invalid, match="without a snapshot before"):
        list(unpack_snapshots([(snapshot_id({"a": X}), changes({"a": X}))]))


@pytest.mark.parametrize(
    ("raw", "result"),
    [
        (changes({}, b"zz\0"), BASE),
        (changes({"03": Y}, b"03\0"), {**BASE, "03": Y}),
        (changes({"../x": Y}), {**BASE, "../x": Y}),
        (changes({"03/x": Y}), {**BASE, "03/x": Y}),
        (changes({}, b"04\0" + b"03\0"), {path: X for path in BASE if path not in {"03", "04"}}),
        (changes({}, b"03\0" + b"03\0"), {path: X for path in BASE if path != "03"}),
        (changes({}, b"03\0", 2), {path: X for path in BASE if path != "03"}),
        (changes({}, b"03"), BASE),
        (changes({}) + b"x", BASE),
        (changes({})[:-1], BASE),
        (changes({})[:-5] + b"\xff" * 4 + b"\0", BASE),
        (changes({}), {**BASE, "03": Y}),
        (b"\x02" + changes({})[1:], BASE),
        (b"\x01", BASE),
        (b"", BASE),
        (b"\x00\x01\xff" + pack_rows(BASE), BASE),
        (b"\x00\xff" + pack_rows(BASE), BASE),
        (b"\x00\x41" + b"x" * 65 + pack_rows(BASE), BASE),
        (b"\x00\x01\x00" + pack_rows(BASE), BASE),
    ],
)
def test_changes_that_do_not_add_up_are_refused(raw: bytes, result: dict[str, str]) -> None:
    with pytest.raises(Invalid):
        list(unpack_snapshots([whole(BASE), (snapshot_id(result), raw)]))
