from __future__ import annotations

import io
from typing import BinaryIO, cast

import pytest

from hub.errors import Invalid
from hub.pack.format import Codec, Kind
from hub.pack.reader import FileSource, PackReader
from hub.pack.writer import PackWriter
from hub.records import EMPTY_OBJECT_ID, object_id
from tests.hub.pack.build import commit, noise, snapshot, text, verify, write


class Trickle:
    """A stream that gives a few bytes at a time, cannot seek, and says how often it was asked."""

    def __init__(self, content: bytes, step: int) -> None:
        self._inner = io.BytesIO(content)
        self._step = step

    def read(self, length: int) -> bytes:
        return self._inner.read(min(length, self._step))


def trickle(content: bytes, step: int = 1000) -> BinaryIO:
    return cast("BinaryIO", Trickle(content, step))


def test_empty_pack_is_valid() -> None:
    data, summary = write()
    assert (summary.objects, summary.snapshots, summary.commits) == (0, 0, 0)
    assert summary.size == len(data) == 16 + 8 + 64
    assert summary.mpack_id == object_id(data)
    assert list(verify(data, expect_id=summary.mpack_id).entries) == []


def test_summary_counts_what_is_there() -> None:
    first = snapshot({"a": object_id(b"x")})
    _, summary = write([b"x", b"y", b"x", b""], [first, first], [commit(first), commit(first), commit(first, "n")])
    assert (summary.objects, summary.snapshots, summary.commits) == (2, 1, 2)


def test_wrong_content_is_refused_before_it_is_written() -> None:
    out = io.BytesIO()
    writer = PackWriter(out)
    with pytest.raises(Invalid, match=object_id(b"y")):
        writer.add_object(object_id(b"x"), b"y")
    assert writer.finish().objects == 0
    assert verify(out.getvalue())


@pytest.mark.parametrize("length", [10, (1 << 20) + 1])
def test_wrong_size_is_refused(length: int) -> None:
    content = text(length)
    for size in (length - 1, length + 1):
        with pytest.raises(Invalid):
            PackWriter(io.BytesIO()).add_object(object_id(content), io.BytesIO(content), size)


def test_wrong_content_of_a_streamed_object_breaks_the_pack() -> None:
    writer = PackWriter(io.BytesIO())
    with pytest.raises(Invalid):
        writer.add_object(object_id(b"x"), io.BytesIO(text(9 << 20)))
    with pytest.raises(ValueError, match="broken"):
        writer.finish()


def test_full_disk_breaks_the_pack() -> None:
    class Full(io.BytesIO):
        def write(self, data: object, /) -> int:
            if self.tell() > 0:
                raise OSError(28, "No space left on device")
            return super().write(data)  # type: ignore[arg-type]

    writer = PackWriter(Full())
    with pytest.raises(OSError, match="No space"):
        writer.add_object(object_id(text(2 << 20)), text(2 << 20))
    with pytest.raises(ValueError, match="broken"):
        writer.add_object(object_id(b"x"), b"x")


def test_bad_object_id_is_refused() -> None:
    with pytest.raises(Invalid, match="object_id"):
        PackWriter(io.BytesIO()).add_object("x", b"x")


def test_finished_pack_takes_nothing_more() -> None:
    writer = PackWriter(io.BytesIO())
    writer.finish()
    with pytest.raises(ValueError, match="finished"):
        writer.add_object(object_id(b"x"), b"x")
    with pytest.raises(ValueError, match="finished"):
        writer.finish()


def test_empty_object_is_never_stored() -> None:
    data, summary = write([b""])
    assert summary.objects == 0
    assert len(verify(data).entries) == 0
    with pytest.raises(Invalid):
        PackWriter(io.BytesIO()).add_object(EMPTY_OBJECT_ID, b"x")


def test_stream_is_read_from_where_it_stands() -> None:
    out = io.BytesIO()
    writer = PackWriter(out)
    stream = io.BytesIO(b"skipped" + b"content")
    stream.seek(7)
    writer.add_object(object_id(b"content"), stream)
    writer.finish()
    reader = verify(out.getvalue())
    assert reader.read(reader.entries[0]) == b"content"


@pytest.mark.parametrize("length", [5000, (1 << 20) + 1, (8 << 20) + 1])
@pytest.mark.parametrize("make", [text, noise])
def test_bytes_and_streams_give_the_same_pack(length: int, make: object) -> None:
    content = make(length)  # type: ignore[operator]
    packs = set()
    for one in (content, io.BytesIO(content), trickle(content, 70_000)):
        out = io.BytesIO()
        writer = PackWriter(out)
        writer.add_object(object_id(content), one, length)
        packs.add(writer.finish().mpack_id)
        assert verify(out.getvalue())
    assert len(packs) == 1


def test_small_objects_share_blocks_of_at_most_a_mib() -> None:
    reader = verify(write([noise(300_000, n) for n in range(8)])[0])
    assert [block.entry_count for block in reader.blocks] == [3, 3, 2]
    assert all(block.codec is Codec.RAW for block in reader.blocks)


def test_large_object_has_a_block_of_its_own_and_leaves_the_shared_one_open() -> None:
    reader = verify(write([b"a", text((1 << 20) + 1), b"b"])[0])
    assert [block.entry_count for block in reader.blocks] == [1, 2]
    assert [entry.entity_id for entry in reader.entries][1:] == [object_id(b"a"), object_id(b"b")]


def test_kinds_never_share_a_block() -> None:
    first = snapshot({"a": object_id(b"x")})
    reader = verify(write([b"x"], [first], [commit(first)])[0])
    assert [block.kind for block in reader.blocks] == [Kind.OBJECT, Kind.SNAPSHOT, Kind.COMMIT]


def test_fifty_manifests_cost_about_one() -> None:
    manifest = {f"src/{n}.py": object_id(b"%d" % n) for n in range(1000)}
    history = []
    for turn in range(50):
        manifest |= {f"src/{(turn * 20 + n) % 1000}.py": object_id(b"%d-%d" % (turn, n)) for n in range(20)}
        history.append(snapshot(dict(manifest)))
    one, _ = write([], history[:1])
    fifty, _ = write([], history)
    assert len(fifty) - len(one) < 49 * 20 * 40 + 49 * 50
    assert [found.manifest for found in verify(fifty).snapshots()] == [made.manifest for made in history]


def test_snapshots_may_change_after_they_were_added() -> None:
    manifest = {f"{n}": object_id(b"%d" % n) for n in range(20)}
    first = snapshot(manifest)
    second = snapshot({**manifest, "0": object_id(b"x")})
    out = io.BytesIO()
    writer = PackWriter(out)
    writer.add_snapshot(first)
    first.manifest.clear()
    writer.add_snapshot(second)
    writer.finish()
    assert [found.manifest for found in verify(out.getvalue()).snapshots()] == [manifest, second.manifest]


def test_manifest_larger_than_a_block_takes_its_changes_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hub.pack.writer._SNAPSHOT_TARGET", 1000)
    manifest = {f"{n}": object_id(b"%d" % n) for n in range(200)}
    history = [snapshot({**manifest, "0": object_id(b"x%d" % n)}) for n in range(30)]
    reader = verify(write([], history)[0])
    assert [block.entry_count for block in reader.blocks] == [30]
    assert list(reader.snapshots()) == history


def test_writer_knows_what_it_has() -> None:
    writer = PackWriter(io.BytesIO())
    writer.add_object(object_id(b"x"), b"x")
    assert (Kind.OBJECT, object_id(b"x")) in writer
    assert (Kind.COMMIT, object_id(b"x")) not in writer


def test_pack_is_read_back_from_a_stream_that_could_not_seek() -> None:
    class Pipe:
        def __init__(self) -> None:
            self.chunks: list[bytes] = []

        def write(self, data: bytes) -> int:
            self.chunks.append(data)
            return len(data)

    pipe = Pipe()
    writer = PackWriter(cast("BinaryIO", pipe))
    writer.add_object(object_id(b"x"), b"x")
    writer.finish()
    assert PackReader.open(FileSource(io.BytesIO(b"".join(pipe.chunks)))).entries[0].entity_id == object_id(b"x")
