import os
import socket
from pathlib import Path

import pytest

from hub.client.errors import BadInput
from hub.client.reserved import is_reserved
from hub.client.tree import read_tree
from hub.records import EMPTY_OBJECT_ID, object_id


def test_tree_has_every_file_by_path_with_its_id(work: Path) -> None:
    tree = read_tree(work)
    assert [file.path for file in tree.files] == [
        "README", "empty", "same", "src/deep/a.bin", "src/gr\u00fc\u00dfe \u4f60.txt",
    ]  # fmt: skip
    assert tree.manifest["README"] == tree.manifest["same"] == object_id(b"hello\n")
    assert tree.manifest["empty"] == EMPTY_OBJECT_ID
    assert tree.files[3].size == 76_800


def test_files_are_in_the_order_of_their_utf8_paths(tmp_path: Path) -> None:
    names = ["a.b", "a/x", "a0", "\ufffd", "\U00010000"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"1")
    paths = [file.path for file in read_tree(tmp_path).files]
    assert paths == sorted(names, key=str.encode)
    assert paths == sorted(names)


def test_directories_that_tools_obey_are_left_out_wherever_they_are(tmp_path: Path) -> None:
    for inside in (".git/config", ".muse/x", "sub/.packhouse/config.json", "sub/.GIT/hooks/y", "sub/kept"):
        (tmp_path / inside).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / inside).write_bytes(b"1")
    (tmp_path / "sub2").mkdir()
    (tmp_path / "sub2" / ".git").write_text("gitdir: elsewhere")
    assert [file.path for file in read_tree(tmp_path).files] == ["sub/kept"]


@pytest.mark.parametrize(
    "name", [".git", ".GIT", ".git.", ".git ", "GIT~1", ".g\u200cit", ".\uff47it", ".Muse", ".PackHouse"]
)
def test_names_that_some_file_system_takes_for_a_reserved_one_are_reserved(name: str) -> None:
    assert is_reserved(name)


@pytest.mark.parametrize("name", [".gitignore", ".github", "git", "muse", ".museignore", ".gitmodules", "a.git"])
def test_names_that_only_look_similar_are_not_reserved(name: str) -> None:
    assert not is_reserved(name)


def test_empty_directories_are_not_part_of_the_tree(tmp_path: Path) -> None:
    (tmp_path / "empty" / "deeper").mkdir(parents=True)
    assert read_tree(tmp_path).files == ()


def test_links_pipes_and_sockets_are_left_out_and_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "loop").symlink_to(".")
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(tmp_path / "socket"))
        tree = read_tree(tmp_path)
    assert [file.path for file in tree.files] == ["file"]
    assert [item.path for item in tree.skipped] == ["link", "loop", "pipe", "socket"]


def test_name_that_is_not_utf8_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/sub/caf\xe9")).write_bytes(b"1")
    with pytest.raises(BadInput, match=r"caf\\xe9.*sub/"):
        read_tree(tmp_path)


def test_unicode_forms_are_kept_apart(tmp_path: Path) -> None:
    (tmp_path / "e\u0301").write_bytes(b"1")
    (tmp_path / "\u00e9").write_bytes(b"2")
    assert len(read_tree(tmp_path).files) == 2


def test_unreadable_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        read_tree(tmp_path / "absent")


def test_link_put_in_the_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"s")
    root = tmp_path / "root"
    root.mkdir()
    (root / "a").write_bytes(b"1")
    (root / "b").write_bytes(b"2")

    def swap(done: int, total: int) -> None:
        if done == 1:
            (root / "b").unlink()
            (root / "b").symlink_to(secret)

    with pytest.raises(BadInput, match="«b»"):
        read_tree(root, swap)
