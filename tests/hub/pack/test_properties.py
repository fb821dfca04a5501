from __future__ import annotations

import io

from hypothesis import given

from hub.pack.format import Kind
from hub.pack.snapshots import pack_snapshot, unpack_snapshots
from hub.pack.writer import PackWriter
from hub.records import Commit, Snapshot, object_id
from tests.hub.pack.build import verify
from tests.hub.pack.calls import Call, add, calls, expected, histories, written


@given(calls())
def test_what_is_added_comes_back(made: list[Call]) -> None:
    data, mpack_id = written(made)
    reader = verify(data, expect_id=mpack_id)
    objects = [b"".join(chunks) for _, chunks in reader.iter_objects()]
    assert sorted(objects) == sorted(expected(made, bytes))
    assert list(reader.snapshots()) == expected(made, Snapshot)
    assert list(reader.commits()) == expected(made, Commit)


@given(calls())
def test_every_entry_can_be_read_alone(made: list[Call]) -> None:
    reader = verify(written(made)[0])
    for entry in reversed(reader.entries):
        assert reader.find(entry.kind, entry.entity_id) == entry
        assert len(reader.read(entry)) == entry.raw_length
        if entry.kind is Kind.OBJECT:
            assert object_id(reader.read(entry)) == entry.entity_id


@given(calls())
def test_same_calls_give_the_same_bytes(made: list[Call]) -> None:
    assert written(made) == written(made)


@given(calls(), calls())
def test_copied_blocks_hold_what_the_pack_held(made: list[Call], before: list[Call]) -> None:
    reader = verify(written(made)[0])
    out = io.BytesIO()
    writer = PackWriter(out)
    for call in before:
        add(writer, call)
    for block in reader.blocks:
        writer.copy_block(reader.stored_chunks(block), block, list(reader.entries.of_block(block)))
    writer.finish()
    copy = verify(out.getvalue())
    objects = [b"".join(chunks) for _, chunks in copy.iter_objects()]
    assert sorted(objects) == sorted(expected(before + made, bytes))
    for found, of in ((copy.snapshots(), Snapshot), (copy.commits(), Commit)):
        assert sorted(found, key=repr) == sorted(expected(before + made, of), key=repr)


@given(histories())
def test_a_snapshot_is_what_it_was_whatever_came_before_it(history: list[Snapshot]) -> None:
    base: dict[str, str] | None = None
    packed = []
    for one in history:
        packed.append((one.snapshot_id, pack_snapshot(one, base)))
        base = one.manifest
    assert list(unpack_snapshots(packed)) == history
