from __future__ import annotations

import io
from collections.abc import Sequence

import pytest

from hub.errors import Invalid
from hub.pack.format import Kind
from hub.pack.reader import PackReader
from hub.pack.writer import PackWriter
from hub.records import object_id
from tests.hub.pack.build import commit, noise, snapshot, text, verify, write


def copied(source: bytes, before: Sequence[bytes] = ()) -> tuple[PackReader, PackReader]:
    """A pack, and the pack of its blocks copied after `before`."""
    reader = verify(source)
    out = io.BytesIO()
    writer = PackWriter(out)
    for content in before:
        writer.add_object(object_id(content), content)
    for block in reader.blocks:
        writer.copy_block(reader.stored_chunks(block), block, list(reader.entries.of_block(block)))
    writer.finish()
    return reader, verify(out.getvalue())


def test_copied_blocks_are_the_same_bytes() -> None:
    source, copy = copied(write([text(900, n) for n in range(50)] + [noise(2 << 20)])[0])
    assert [entry.entity_id for entry in copy.entries] == [entry.entity_id for entry in source.entries]
    for one, other in zip(source.blocks, copy.blocks, strict=True):
        assert b"".join(source.stored_chunks(one)) == b"".join(copy.stored_chunks(other))


def test_copy_of_a_block_that_is_known_in_part_adds_the_rest() -> None:
    objects = [text(900, n) for n in range(5)]
    _, copy = copied(write(objects)[0], before=objects[1:3])
    assert {entry.entity_id for entry in copy.entries} == {object_id(content) for content in objects}


def test_copy_of_a_block_that_is_known_adds_nothing() -> None:
    objects = [text(900, n) for n in range(5)]
    _, copy = copied(write(objects)[0], before=objects)
    assert len(copy.blocks) == 1


def test_records_of_a_block_known_in_part_are_added() -> None:
    first = snapshot({f"{n}": object_id(b"%d" % n) for n in range(20)})
    second = snapshot({**first.manifest, "0": object_id(b"x")})
    commits = [commit(first), commit(second)]
    reader = verify(write([], [first, second], commits)[0])
    out = io.BytesIO()
    writer = PackWriter(out)
    writer.add_snapshot(first)
    writer.add_commit(commits[0])
    for block in reader.blocks:
        writer.copy_block(b"".join(reader.stored_chunks(block)), block, list(reader.entries.of_block(block)))
    writer.finish()
    copy = verify(out.getvalue())
    assert list(copy.snapshots()) == [first, second]
    assert list(copy.commits()) == commits


def test_damaged_block_is_not_copied() -> None:
    reader = verify(write([noise(500), noise(500, 1)])[0])
    block = reader.blocks[0]
    stored = bytearray(b"".join(reader.stored_chunks(block)))
    stored[7] ^= 1
    writer = PackWriter(io.BytesIO())
    with pytest.raises(Invalid, match="checksum"):
        writer.copy_block(bytes(stored), block, list(reader.entries))
    with pytest.raises(ValueError, match="broken"):
        writer.finish()


def test_copy_asks_for_all_entries_in_order() -> None:
    reader = verify(write([b"a", b"b"])[0])
    block, entries = reader.blocks[0], list(reader.entries)
    stored = b"".join(reader.stored_chunks(block))
    for wrong in ([], entries[:1], entries[1:], entries[::-1], [entries[0]._replace(kind=Kind.COMMIT), entries[1]]):
        with pytest.raises(ValueError, match="entries"):
            PackWriter(io.BytesIO()).copy_block(stored, block, wrong)
