"""The files of a commit as one download: exact, the same every time, streamed."""

from __future__ import annotations

import io
import random
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
import zstandard

from hub.export import FORMATS
from storage import AccessDenied, FaultyStore, MemoryStore, StorageError, Unavailable
from tests.hub.racing import pushed
from tests.hub.world import BEGIN, History, World

pytestmark = pytest.mark.integration

FILES = {
    "a": b"",
    "dir/b.txt": b"content\n",
    "dir/Ünïcødé 文件 .txt": b"unicode",
    "long/" + "x" * 200 + "/" + "y" * 180: b"a long path",
    "same": b"content\n",
    "big": random.Random(1).randbytes(3_000_000),
}


def unpacked(ending: str, raw: bytes) -> dict[str, bytes]:
    """Path → content, as the standard library reads the file."""
    if ending == ".zip":
        with zipfile.ZipFile(io.BytesIO(raw)) as file:
            assert file.testzip() is None
            return {info.filename: file.read(info) for info in file.infolist()}
    if ending == ".tar.zst":
        raw = zstandard.ZstdDecompressor().decompressobj().decompress(raw)
    with tarfile.open(fileobj=io.BytesIO(raw), mode="r:gz" if ending == ".tar.gz" else "r:") as file:
        members = file.getmembers()
        assert {member.mode for member in members} <= {0o644}
        assert {member.mtime for member in members} <= {BEGIN.timestamp()}
        return {member.name: file.extractfile(member).read() for member in members}  # type: ignore[union-attr]


@pytest.mark.parametrize("ending", FORMATS)
def test_a_download_has_every_file_and_the_same_bytes_again(world: World, history: History, ending: str) -> None:
    tip = history.commit(FILES)
    pushed(world.push_mpack(history, tip))
    world.drain()
    answer = world.get(f"/archive/main{ending}")
    assert answer.status_code == 200
    assert answer.content_type == FORMATS[ending][0]
    assert unpacked(ending, answer.data) == {f"data-main/{path}": content for path, content in FILES.items()}
    assert world.get(f"/archive/main{ending}").data == answer.data
    assert f"data-main{ending}" in answer.headers["Content-Disposition"]


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize(
    ("error", "status", "code"),
    [(Unavailable, 503, "STORE_UNAVAILABLE"), (AccessDenied, 500, "STORE_DENIED")],
)
def test_a_store_that_fails_at_once_is_an_answer(
    new_world: Callable[..., World], history: History, ending: str, error: type[StorageError], status: int, code: str
) -> None:
    away = False

    def hook(op: str, key: str, phase: str) -> None:
        if away and op in ("get", "get_range", "open_range"):
            raise error(key)

    world = new_world(archive=FaultyStore(MemoryStore(), hook=hook))
    pushed(world.push_mpack(history, history.commit({"a": b"content"})))
    world.drain()
    away = True
    answer = world.get(f"/archive/main{ending}")
    assert (answer.status_code, answer.get_json()["error"]) == (status, code)


@pytest.mark.parametrize("ending", FORMATS)
def test_a_commit_without_files_is_an_empty_archive(world: World, history: History, ending: str) -> None:
    pushed(world.push_mpack(history, history.commit({})))
    assert unpacked(ending, world.get(f"/archive/main{ending}").data) == {}


def test_a_commit_is_called_by_branch_tag_label_or_id(world: World, history: History) -> None:
    old = history.commit({"f": b"old"})
    tip = history.commit({"f": b"new"}, old)
    pushed(world.push_mpack(history, tip, "dev/x"))
    world.drain()
    tags = [{"tag_id": "1", "commit_id": old, "tag": "label", "created_at": BEGIN.isoformat()}]
    tags += [{**tags[0], "tag_id": number, "tag": "twice", "commit_id": on} for number, on in (("2", old), ("3", tip))]
    pushed(world.post("/tags", {"tags": tags}, muse=True))
    for ref, content in {"dev/x": b"new", tip: b"new", old: b"old", "label": b"old"}.items():
        found = unpacked(".zip", world.get(f"/archive/{ref}.zip").data)
        assert list(found.values()) == [content]
        assert all(path.count("/") == 1 for path in found)
    for ref in ("none", "twice", "f" * 64, old[:12], "%00"):
        assert world.get(f"/archive/{ref}.zip").status_code == 404
    assert world.get("/archive/label.rar").status_code == 404
    assert world.get("/archive/.zip").status_code == 404


def test_a_private_repository_is_unknown_to_strangers(world: World, history: History) -> None:
    world.repository("alice/secret", private=True)
    world.base = "/alice/secret"
    pushed(world.push_mpack(history, history.commit({"f": b"secret"})))
    world.drain()
    assert world.get("/archive/main.zip", token=None).status_code == 404
    assert world.get("/archive/main.zip").status_code == 200


def test_what_is_not_indexed_is_told_before_a_byte_is_sent(
    world: World, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hub.wire.pull.INDEX_SECONDS", 0)
    pushed(world.push_mpack(history, history.commit({"f": b"new"})))
    answer = world.get("/archive/main.tar.gz")
    assert answer.status_code == 503
    assert "Retry-After" in answer.headers


@pytest.mark.slow
@pytest.mark.parametrize("ending", FORMATS)
def test_a_large_tree_takes_little_memory(world: World, history: History, ending: str) -> None:
    chance = random.Random(7)
    files = {f"d{number % 40}/f{number}": chance.randbytes(12_000) for number in range(4_000)}
    pushed(world.push_mpack(history, history.commit(files)))
    world.drain()
    size = 0
    tracemalloc.start()
    try:
        answer = world.client.get(f"/alice/data/archive/main{ending}", buffered=False)
        for chunk in answer.iter_encoded():
            size += len(chunk)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size > 40_000_000
    assert peak < 70_000_000, f"{peak:,} bytes at the peak"


def test_times_that_a_zip_file_cannot_say_are_clamped() -> None:
    from hub.export import zip_file

    raw = b"".join(zip_file(iter([("f", 1, iter([b"x"]))]), "folder", datetime(1970, 1, 1, tzinfo=UTC)))
    with zipfile.ZipFile(io.BytesIO(raw)) as file:
        assert file.infolist()[0].date_time == (1980, 1, 1, 0, 0, 0)
