"""Whatever the bytes are: Invalid or TooLarge, and nothing else."""

from __future__ import annotations

import contextlib
import io

from hypothesis import given
from hypothesis import strategies as st

from hub.errors import Invalid, TooLarge
from hub.pack.blocks import SHARED_LEVEL, compress_block, decompress_block
from hub.pack.format import HEADER
from hub.pack.reader import FileSource, PackReader
from hub.records import object_id, snapshot_id
from tests.hub.pack.build import LIMITS, Parts, sample, seal, split, verify

SAMPLE = sample()
MIB = 1 << 20
REFUSALS = (Invalid, TooLarge)

numbers = st.one_of(
    st.integers(0, 200),
    st.sampled_from([2**k + d for k in (7, 8, 15, 16, 20, 31, 32, 62) for d in (-1, 0, 1)]),
    st.integers(0, 2**64 - 1),
)


def survey(data: bytes) -> bool:
    """Open and read all of a pack in every way; whether it was accepted. Any other exception is the test's
    failure.
    """
    accepted = False
    with contextlib.suppress(*REFUSALS):
        verify(data)
        accepted = True
    with contextlib.suppress(*REFUSALS):
        reader = PackReader.open(FileSource(io.BytesIO(data)), LIMITS)
        for entry in reader.entries:
            with contextlib.suppress(*REFUSALS):
                reader.read(entry)
        with contextlib.suppress(*REFUSALS):
            list(reader.snapshots())
        with contextlib.suppress(*REFUSALS):
            list(reader.commits())
        with contextlib.suppress(*REFUSALS):
            for _, chunks in reader.iter_objects():
                list(chunks)
    return accepted


@st.composite
def mutated(draw: st.DrawFn, data: bytes) -> bytes:
    """Bytes with a few changes: flips, cuts, repeats, inserts, numbers overwritten."""
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(changed) - 1, 0)))
        match draw(st.sampled_from(["flip", "cut", "repeat", "insert", "number", "swap"])):
            case "flip" if changed:
                changed[at] ^= draw(st.integers(1, 255))
            case "cut":
                del changed[at : at + draw(st.integers(1, 64))]
            case "repeat":
                changed[at:at] = changed[at : at + draw(st.integers(1, 64))]
            case "insert":
                changed[at:at] = draw(st.binary(min_size=1, max_size=16))
            case "number":
                width = draw(st.sampled_from([1, 2, 4, 8]))
                value = draw(numbers) % (1 << 8 * width)
                changed[at : at + width] = value.to_bytes(width, "little")
            case "swap":
                other = draw(st.integers(0, max(len(changed) - 32, 0)))
                one, two = changed[at : at + 32], changed[other : other + 32]
                if abs(at - other) >= 32 and at + 32 <= len(changed):
                    changed[at : at + 32], changed[other : other + 32] = two, one
            case _:
                pass
    return bytes(changed)


@st.composite
def restructured(draw: st.DrawFn) -> bytes:
    """A pack with changes in its table, its index or its blocks, and every seal right."""
    parts = Parts.of(SAMPLE)
    for _ in range(draw(st.integers(1, 3))):
        number = draw(st.integers(0, len(parts.rows) - 1))
        match draw(st.sampled_from(["row", "length", "id", "order", "drop", "double", "stored", "unpacked"])):
            case "row":
                field, bits = draw(
                    st.sampled_from([("stored_length", 64), ("raw_length", 64), ("entry_count", 32)])
                    | st.sampled_from([("checksum", 32), ("kind", 8), ("codec", 8)])
                )
                parts.rows[number] = parts.rows[number]._replace(**{field: draw(numbers) % (1 << bits)})
            case "length":
                parts.lengths[draw(st.integers(0, len(parts.lengths) - 1))] = draw(numbers)
            case "id":
                ids = st.sampled_from(parts.ids) | st.binary(min_size=32, max_size=32)
                parts.ids[draw(st.integers(0, len(parts.ids) - 1))] = draw(ids)
            case "order":
                other = draw(st.integers(0, len(parts.rows) - 1))
                parts.rows[number], parts.rows[other] = parts.rows[other], parts.rows[number]
                parts.stored[number], parts.stored[other] = parts.stored[other], parts.stored[number]
            case "drop" if len(parts.rows) > 1:
                del parts.rows[number], parts.stored[number]
            case "double":
                parts.rows.append(parts.rows[number])
                parts.stored.append(parts.stored[number])
            case "stored":
                parts.put(number, draw(mutated(parts.stored[number])))
            case "unpacked":
                _repack(draw, parts, number)
            case _:
                pass
    return parts.seal()


def _repack(draw: st.DrawFn, parts: Parts, number: int) -> None:
    """Change what a small block unfolds into; lengths and checksum follow, so that only its content can
    tell.
    """
    row = parts.rows[number]
    with contextlib.suppress(Invalid, ValueError):
        reader = PackReader.open(FileSource(io.BytesIO(parts.seal())), LIMITS)
        block = reader.blocks[number]
        raw = decompress_block(parts.stored[number], block)
        if len(raw) < 10_000:
            changed = draw(mutated(raw))
            codec, stored = compress_block(changed, SHARED_LEVEL)
            last = block.first_entry + block.entry_count - 1
            parts.lengths[last] = max(parts.lengths[last] + len(changed) - len(raw), 0)
            parts.put(number, stored, raw_length=len(changed), codec=codec, kind=row.kind)


@given(mutated(SAMPLE))
def test_mutated_pack_is_refused(data: bytes) -> None:
    assert not survey(data) or data == SAMPLE


@given(restructured())
def test_pack_with_lies_under_right_seals_is_refused_or_sound(data: bytes) -> None:
    if survey(data):
        reader = verify(data)
        for entry, chunks in reader.iter_objects():
            assert object_id(b"".join(chunks)) == entry.entity_id
        assert all(one.snapshot_id == snapshot_id(one.manifest) for one in reader.snapshots())


@given(mutated(split(SAMPLE)[1]))
def test_pack_with_a_changed_index_is_refused(index: bytes) -> None:
    accepted = survey(seal(split(SAMPLE)[0], index))
    assert not accepted or index == split(SAMPLE)[1]


@given(st.binary(max_size=400))
def test_garbage_is_refused(garbage: bytes) -> None:
    assert not survey(garbage)
    assert not survey(HEADER + garbage)
    assert not survey(seal(HEADER, garbage)) or garbage == bytes(8)
    assert not survey(seal(HEADER + garbage, garbage))
