from __future__ import annotations

import struct

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from hub.errors import Invalid, TooLarge
from hub.manifest import (
    MAX_MANIFEST_BYTES,
    check_manifest,
    decode_manifest,
    encode_manifest,
    pack_rows,
    snapshot_id,
    unpack_rows,
)
from tests.hub.pack.build import manifests

HELLO = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
WORLD = "e258d248fda94c63753607f7c4494ee0fcbe92f1a76bfdac795c9d84101eb317"


def test_snapshot_id_sorts_whole_rows() -> None:
    # printf 'a-b\0WORLD\0a/b\0HELLO' | sha256sum
    expected = "98a339dc918680a9b8465b122f389fd080b12398c65fa5077ecc71cde5eda2d9"
    assert snapshot_id({"a/b": HELLO, "a-b": WORLD}) == expected
    assert snapshot_id({"a-b": WORLD, "a/b": HELLO}) == expected


def test_snapshot_id_hashes_utf8() -> None:
    expected = "fe8ef5ae23d5daf50c2d55e44f88c82cc33e07027055ad56c63cc7aa5a6d060b"
    assert snapshot_id({"é.txt": HELLO}) == expected


def test_composed_and_decomposed_names_are_two_files() -> None:
    assert snapshot_id({"e\u0301.txt": HELLO}) != snapshot_id({"é.txt": HELLO})


def test_empty_manifest_has_the_id_of_the_empty_object() -> None:
    assert snapshot_id({}) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.mark.parametrize(
    "path",
    ["", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", ".muse", "a/.muse/b", ".Muse/x", "a\0b", "\udc80", "x" * 4097],
)
def test_bad_path_is_refused(path: str) -> None:
    with pytest.raises(Invalid) as caught:
        check_manifest({path: HELLO}, "snapshots[0].manifest")
    assert caught.value.field == "snapshots[0].manifest"


@pytest.mark.parametrize("path", [".museignore", "a/.muses", "...", "a b", "~", "a\\b", "tab\t", "new\nline", "名前"])
def test_odd_path_is_kept(path: str) -> None:
    assert check_manifest({path: HELLO}, "manifest") == {path: HELLO}


@pytest.mark.parametrize("entity_id", [HELLO.upper(), HELLO[:-1], HELLO + "\n", "", 5, None, HELLO.encode()])
def test_bad_object_id_is_refused_by_its_path(entity_id: object) -> None:
    with pytest.raises(Invalid, match="a/b"):
        check_manifest({"a/b": entity_id}, "manifest")


def test_manifest_must_be_a_map() -> None:
    with pytest.raises(Invalid):
        check_manifest([["a", HELLO]], "manifest")


def test_path_must_be_a_string() -> None:
    with pytest.raises(Invalid):
        check_manifest({5: HELLO}, "manifest")


@pytest.mark.parametrize("paths", [["a", "a/b"], ["a", "a-b", "a/b"], ["d/a/b/c", "d/a"], ["a/b/c", "a/b.x", "a/b"]])
def test_path_that_is_also_a_directory_is_refused(paths: list[str]) -> None:
    with pytest.raises(Invalid, match="directory"):
        check_manifest(dict.fromkeys(paths, HELLO), "manifest")


def test_path_that_begins_like_another_is_no_directory() -> None:
    paths = ["a", "a-b", "ab", "a.b/c", "b/a"]
    assert list(check_manifest(dict.fromkeys(paths, HELLO), "manifest")) == paths


@given(manifests())
def test_encoded_manifest_decodes_to_itself(manifest: dict[str, str]) -> None:
    assert decode_manifest(encode_manifest(manifest)) == manifest


@given(manifests(), st.randoms())
def test_encoding_does_not_depend_on_the_order_of_paths(manifest: dict[str, str], random: object) -> None:
    items = list(manifest.items())
    random.shuffle(items)  # type: ignore[attr-defined]
    assert encode_manifest(dict(items)) == encode_manifest(manifest)


def test_rows_are_these_bytes() -> None:
    rows = pack_rows({"b/é": HELLO, "a": WORLD})
    expected = "02000000" + "07000000" + "6100" + "622fc3a900" + WORLD + HELLO
    assert rows.hex() == expected
    assert unpack_rows(b"xx" + rows, 2, "manifest") == ({"a": WORLD, "b/é": HELLO}, 2 + len(rows))


@pytest.mark.parametrize(
    "rows",
    [
        b"",
        struct.pack("<I", 0),
        struct.pack("<II", 1, 0),
        struct.pack("<II", 2**32 - 1, 2**32 - 1) + b"a\0" + bytes(32),
        struct.pack("<II", 1, 2) + b"a\0" + bytes(31),
        struct.pack("<II", 1, 2) + b"ab" + bytes(32),
        struct.pack("<II", 2, 4) + b"a\0a\0" + bytes(64),
        struct.pack("<II", 2, 4) + b"b\0a\0" + bytes(64),
        struct.pack("<II", 1, 2) + b"\xff\0" + bytes(32),
        struct.pack("<II", 1, 4) + b"a\0b\0" + bytes(32),
        struct.pack("<II", 0, 1) + b"a",
    ],
)
def test_rows_that_do_not_add_up_are_refused(rows: bytes) -> None:
    with pytest.raises(Invalid):
        unpack_rows(rows, 0, "manifest")


@given(st.binary(max_size=300))
def test_garbage_is_refused(garbage: bytes) -> None:
    for encoded in (garbage, b"\x01" + garbage, b"\x01\x28\xb5\x2f\xfd" + garbage):
        with pytest.raises(Invalid):
            decode_manifest(encoded)


def test_manifest_bomb_is_refused_by_its_declared_size() -> None:
    bomb = zstandard.compress(bytes(MAX_MANIFEST_BYTES + 1))
    with pytest.raises(Invalid, match="declare a size"):
        decode_manifest(b"\x01" + bomb)


def test_bytes_after_an_encoded_manifest_are_refused() -> None:
    encoded = encode_manifest({"a": HELLO})
    with pytest.raises(Invalid):
        decode_manifest(encoded + b"x")
    with pytest.raises(Invalid, match="after its end"):
        decode_manifest(b"\x01" + zstandard.compress(pack_rows({"a": HELLO}) + b"x"))


def test_manifest_above_the_limit_is_not_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hub.manifest.MAX_MANIFEST_BYTES", 41)
    with pytest.raises(TooLarge):
        encode_manifest({"ab": HELLO})
    assert decode_manifest(encode_manifest({})) == {}
