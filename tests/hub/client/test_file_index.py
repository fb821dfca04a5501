"""The index of files: only what has changed is read again, and never is an old id taken for a new content."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hub.client.file_index import NAME, FileIndex
from hub.client.tree import read_tree
from hub.client.workdir import STATE
from hub.records import object_id

LIE = "f" * 64


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A working directory with two files that are older than any index."""
    (tmp_path / STATE).mkdir()
    (tmp_path / "a").write_bytes(b"one")
    (tmp_path / "b").write_bytes(b"two")
    until_later(tmp_path / "b")
    return tmp_path


def until_later(file: Path) -> None:
    """Come back when the file system's clock has ticked since `file` was changed."""
    probe = file.parent / STATE / "probe"
    while True:
        probe.touch()
        if probe.stat().st_mtime_ns > file.stat().st_ctime_ns:
            return probe.unlink()


def read(root: Path) -> dict[str, str]:
    index = FileIndex(root)
    try:
        return read_tree(root, index=index).manifest
    finally:
        index.save()


def entered(root: Path) -> dict[str, list[object]]:
    files: dict[str, list[object]] = json.loads((root / STATE / NAME).read_text())["files"]
    return files


def lie(root: Path) -> None:
    """Enter wrong ids: whoever believes the index tells them."""
    files = {path: [mark, LIE] for path, (mark, _) in entered(root).items()}
    (root / STATE / NAME).write_text(json.dumps({"files": files}))


def test_files_that_have_not_changed_are_not_read(root: Path) -> None:
    assert read(root) == {"a": object_id(b"one"), "b": object_id(b"two")}
    lie(root)
    assert read(root) == {"a": LIE, "b": LIE}


def test_change_that_keeps_size_and_time_is_seen(root: Path) -> None:
    read(root)
    lie(root)
    before = (root / "a").stat()
    (root / "a").write_bytes(b"eno")
    os.utime(root / "a", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert read(root)["a"] == object_id(b"eno")


def test_other_file_in_the_same_place_is_seen(root: Path) -> None:
    read(root)
    lie(root)
    (root / "c").write_bytes(b"new")
    (root / "c").replace(root / "a")
    assert read(root) == {"a": object_id(b"new"), "b": LIE}


def test_file_that_is_written_while_the_index_is_made_is_read_again(root: Path) -> None:
    index = FileIndex(root)
    (root / "a").write_bytes(b"1st")
    read_tree(root, index=index)
    index.save()
    assert set(entered(root)) == {"b"}


def test_file_that_has_gone_is_forgotten(root: Path) -> None:
    read(root)
    (root / "a").unlink()
    read(root)
    assert set(entered(root)) == {"b"}


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\xff", b"[]", b'{"files": []}', b'{"files": {"a": null}}', b'{"files": {"a": [[1, 2, 3], "x"]}}',
        b'{"files": {"a": [[1, 2, 3, "4"], "%s"]}}' % (b"0" * 64), b'{"files": {"a": [[1, 2, 3, 4], "0"]}}',
    ],
)  # fmt: skip
def test_damaged_index_is_made_anew(root: Path, content: bytes) -> None:
    (root / STATE / NAME).write_bytes(content)
    assert read(root)["a"] == object_id(b"one")
    assert set(entered(root)) == {"a", "b"}


def test_directory_without_state_gets_none(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one")
    assert read(tmp_path) == {"a": object_id(b"one")}
    assert not (tmp_path / STATE).exists()


def test_nothing_half_written_is_left(root: Path) -> None:
    read(root)
    read(root)
    assert [path.name for path in (root / STATE).iterdir()] == [NAME]
