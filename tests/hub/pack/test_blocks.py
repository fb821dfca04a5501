from __future__ import annotations

import zlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from hub.errors import Invalid
from hub.pack.blocks import (
    ALONE_LEVEL,
    SHARED_LEVEL,
    compress_block,
    compress_stream,
    decompress_block,
    raw_chunks,
)
from hub.pack.content import pieces
from hub.pack.format import Block, Codec
from tests.hub.pack import frames
from tests.hub.pack.build import noise, text


def block_for(stored: bytes, raw_length: int, codec: Codec = Codec.ZSTD) -> Block:
    return Block(0, 16, len(stored), raw_length, codec, zlib.crc32(stored))


def refused(stored: bytes, raw_length: int) -> str:
    """The sentence with which these bytes are refused; in pieces they are refused as well."""
    block = block_for(stored, raw_length)
    with pytest.raises(Invalid):
        list(raw_chunks((stored[at : at + 1] for at in range(len(stored))), block))
    with pytest.raises(Invalid) as caught:
        decompress_block(stored, block)
    assert caught.value.field == "mpack.blocks[0]"
    return caught.value.sentence


@pytest.mark.parametrize("raw", [b"x", text(100), text(1 << 20), noise(1 << 20), noise(300_000) + text(300_000)])
@pytest.mark.parametrize("level", [ALONE_LEVEL, SHARED_LEVEL])
def test_block_survives(raw: bytes, level: int) -> None:
    codec, stored = compress_block(raw, level)
    assert decompress_block(stored, block_for(stored, len(raw), codec)) == raw


def test_incompressible_block_is_stored_raw() -> None:
    raw = noise(50_000)
    assert compress_block(raw, SHARED_LEVEL) == (Codec.RAW, raw)


@pytest.mark.parametrize("length", [(8 << 20) + 1, 9 << 20])
def test_streamed_object_survives(length: int) -> None:
    for raw, expected in ((text(length), Codec.ZSTD), (noise(length), Codec.RAW)):
        codec, chunks = compress_stream(pieces(raw, length, "x"), length)
        stored = b"".join(chunks)
        assert codec is expected
        assert b"".join(raw_chunks([stored], block_for(stored, length, codec))) == raw


@given(st.binary(min_size=1, max_size=3000), st.integers(1, 5000))
def test_frame_is_read_however_it_is_cut(raw: bytes, step: int) -> None:
    stored = zstandard.compress(raw * 50)
    chunks = [stored[at : at + step] for at in range(0, len(stored), step)]
    assert b"".join(raw_chunks(chunks, block_for(stored, len(raw) * 50))) == raw * 50


def test_frame_built_by_hand_is_read() -> None:
    stored = frames.frame(200_000, *frames.zeros(200_000))
    assert decompress_block(stored, block_for(stored, 200_000)) == bytes(200_000)


def test_stored_length_must_be_the_declared_one() -> None:
    stored = zstandard.compress(b"hello" * 9)
    block = block_for(stored, 45)
    for other in (stored + b"x", stored[:-1], b""):
        with pytest.raises(Invalid):
            decompress_block(other, block)


def test_checksum_must_fit() -> None:
    raw = noise(100)
    block = block_for(raw, 100, Codec.RAW)
    with pytest.raises(Invalid, match="checksum"):
        decompress_block(raw[:-1] + b"\0", block)


def test_frame_that_unfolds_further_than_it_declares_is_cut_off() -> None:
    stored = frames.frame(1000, *frames.zeros(1 << 30))
    assert refused(stored, 1000)
    twice = [frames.block(frames.RLE, 600, b"\0"), frames.block(frames.RLE, 600, b"\0", last=True)]
    assert refused(frames.frame(1000, *twice), 1000)


def test_raw_block_longer_than_it_declares_is_cut_off() -> None:
    with pytest.raises(Invalid, match="unfolds into more"):
        decompress_block(b"abc", block_for(b"abc", 2, Codec.RAW))


def test_frame_that_unfolds_into_less_is_refused() -> None:
    assert refused(frames.frame(1000, *frames.zeros(999)), 1000)


def test_frame_must_declare_the_raw_length() -> None:
    assert "declares 10" in refused(frames.frame(1 << 30, *frames.zeros(10)), 10)
    sizeless = zstandard.ZstdCompressor(write_content_size=False).compress(b"hello" * 9)
    assert "declares 45" in refused(sizeless, 45)


def test_wide_window_is_refused() -> None:
    assert "window" in refused(frames.windowed(5, 30, *frames.zeros(5)), 5)
    widest = frames.windowed(5, 23, *frames.zeros(5))
    assert decompress_block(widest, block_for(widest, 5)) == bytes(5)


def test_checksum_inside_the_frame_is_refused() -> None:
    assert "checksum" in refused(zstandard.ZstdCompressor(write_checksum=True).compress(b"hello" * 9), 45)


def test_empty_zstd_blocks_without_number_are_refused() -> None:
    empty = frames.block(frames.RAW, 0, b"")
    assert "too many" in refused(frames.frame(10, *[empty] * 50_000, *frames.zeros(10)), 10)


def test_reserved_and_oversized_zstd_blocks_are_refused() -> None:
    assert "reserved" in refused(frames.frame(10, frames.block(frames.RESERVED, 1, b"x", last=True)), 10)
    size = 128 * 1024 + 1
    assert "too many" in refused(frames.frame(size, frames.block(frames.RLE, size, b"x", last=True)), size)


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 8, 10])
def test_frame_cut_short_is_refused(cut: int) -> None:
    assert refused(frames.frame(10, frames.block(frames.RAW, 10, bytes(10), last=True))[:cut], 10)


def test_frame_without_a_last_block_is_refused() -> None:
    assert "ends inside" in refused(frames.frame(10, frames.block(frames.RAW, 10, bytes(10))), 10)


def test_second_and_skippable_frames_are_refused() -> None:
    good = frames.frame(10, *frames.zeros(10))
    assert "after" in refused(good + good, 10)
    skippable = b"\x50\x2a\x4d\x18" + (10).to_bytes(4, "little") + bytes(10)
    assert "begin with" in refused(skippable, 10)


@given(st.binary(max_size=200), st.integers(1, 300))
def test_garbage_is_refused(garbage: bytes, raw_length: int) -> None:
    for stored in (garbage, frames.MAGIC + garbage, frames.frame(raw_length, garbage)):
        try:
            raw = decompress_block(stored, block_for(stored, raw_length))
        except Invalid:
            continue
        assert len(raw) == raw_length
