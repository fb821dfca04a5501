"""Blocks: compressed, and decompressed without trusting the bytes.

A zstd frame can claim any size and unfold without bound. Here a frame is taken apart into its own blocks,
none of which can unfold into more than 128 KiB, and these are decompressed one by one: what is in memory is
one of them, and the first byte beyond the declared raw length ends it. Every path that reads a block goes
through `raw_chunks`, so that nothing is accepted in one place and refused in another.
"""

from __future__ import annotations

import itertools
import zlib
from typing import TYPE_CHECKING

import zstandard

from hub.errors import Invalid
from hub.pack.format import MAX_WINDOW, Block, Codec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SHARED_LEVEL = 6
"""zstd level of blocks that many small entries share: near the best for text at 140 MB/s a core."""
ALONE_LEVEL = 3
"""zstd level of an object with a block of its own; incompressible bytes pass at more than 1 GB/s."""

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_HEADER_MAX = 18
_ZSTD_BLOCK_MAX = 128 * 1024
_ZSTD_BLOCK_MEAN = 256
_RLE, _RESERVED = 1, 3


def compressor(level: int) -> zstandard.ZstdCompressor:
    """A compressor whose output depends on its input alone: one thread, no checksum, no dictionary."""
    return zstandard.ZstdCompressor(
        level=level, threads=0, write_content_size=True, write_checksum=False, write_dict_id=False
    )


def compress_block(raw: bytes, level: int) -> tuple[Codec, bytes]:
    """The stored form of a block: a zstd frame, or the raw bytes themselves where that is not smaller."""
    frame = compressor(level).compress(raw)
    return (Codec.ZSTD, frame) if len(frame) < len(raw) else (Codec.RAW, raw)


def compress_stream(pieces: Iterator[bytes], length: int) -> tuple[Codec, Iterator[bytes]]:
    """The stored form of an object of `length` bytes that is too large to be held in memory.

    Its first piece decides whether it is compressed: what does not shrink there by 2 % is stored raw.
    """
    first = next(pieces)
    whole = itertools.chain([first], pieces)
    if len(compressor(ALONE_LEVEL).compress(first)) > 0.98 * len(first):
        return Codec.RAW, whole
    return Codec.ZSTD, _squeezed(whole, length)


def _squeezed(pieces: Iterable[bytes], length: int) -> Iterator[bytes]:
    squeeze = compressor(ALONE_LEVEL).compressobj(size=length)
    for piece in pieces:
        yield squeeze.compress(piece)
    yield squeeze.flush()


def check_stored(chunks: Iterable[bytes], block: Block) -> Iterator[bytes]:
    """Hand on the stored bytes of `block`; raise Invalid unless their length and checksum are its own."""
    length = checksum = 0
    for chunk in chunks:
        length += len(chunk)
        if length > block.stored_length:
            break
        checksum = zlib.crc32(chunk, checksum)
        yield chunk
    if length != block.stored_length:
        raise Invalid(_field(block), f"is not of its stored length, {block.stored_length} bytes")
    if checksum != block.checksum:
        raise Invalid(_field(block), "is damaged: its checksum differs")


def raw_chunks(stored: Iterable[bytes], block: Block) -> Iterator[bytes]:
    """The raw bytes of `block`, piece by piece, exactly `raw_length` in all.

    Raises Invalid for anything else. `stored` is read to its end; checksum and stored length are for
    `check_stored` to check.
    """
    if block.codec is Codec.RAW:
        yield from _counted(stored, block)
    else:
        yield from _counted(_decompressed(stored, block), block)


def decompress_block(stored: bytes, block: Block) -> bytes:
    """The raw bytes of `block`, whose stored bytes were read as one. Takes no more memory than `raw_length`.

    Raises Invalid when length, checksum or content differ from what `block` declares.
    """
    return b"".join(raw_chunks(check_stored([stored], block), block))


def _field(block: Block) -> str:
    return f"mpack.blocks[{block.number}]"


def _counted(chunks: Iterable[bytes], block: Block) -> Iterator[bytes]:
    length = 0
    for chunk in chunks:
        length += len(chunk)
        if length > block.raw_length:
            raise Invalid(_field(block), f"unfolds into more than the {block.raw_length} bytes it declares")
        yield chunk
    if length != block.raw_length:
        raise Invalid(_field(block), f"unfolds into {length} bytes, but declares {block.raw_length}")


def _decompressed(stored: Iterable[bytes], block: Block) -> Iterator[bytes]:
    unzip = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).decompressobj()
    try:
        for piece in _frame_pieces(_Taker(stored, block), block):
            if raw := unzip.decompress(piece):
                yield raw
    except zstandard.ZstdError:
        raise Invalid(_field(block), "is not a valid zstd frame") from None
    if not unzip.eof:
        raise Invalid(_field(block), "does not end its zstd frame")


def _frame_pieces(stored: _Taker, block: Block) -> Iterator[bytes]:
    """The header of the only zstd frame in `stored`, then each of its blocks."""
    head = stored.peek(_ZSTD_HEADER_MAX)
    if head[:4] != _ZSTD_MAGIC:
        raise Invalid(_field(block), "does not begin with a zstd frame")
    frame = zstandard.get_frame_parameters(head)
    if frame.content_size != block.raw_length or frame.dict_id or frame.has_checksum or frame.window_size > MAX_WINDOW:
        raise Invalid(
            _field(block),
            f"must be a zstd frame that declares {block.raw_length} bytes, without dictionary or checksum, "
            f"with a window of at most {MAX_WINDOW} bytes",
        )
    yield stored.take(zstandard.frame_header_size(head))
    # zstd's own blocks may be empty: without a bound on their number, a small raw length could cost any time.
    most = block.raw_length // _ZSTD_BLOCK_MEAN + 2
    last = 0
    while not last:
        header = stored.take(3)
        word = int.from_bytes(header, "little")
        last, kind, length = word & 1, word >> 1 & 3, word >> 3
        most -= 1
        if most < 0 or kind == _RESERVED or length > _ZSTD_BLOCK_MAX:
            raise Invalid(
                _field(block), "holds a zstd block of a reserved type, of too many bytes, or too many of them"
            )
        yield header + stored.take(1 if kind == _RLE else length)
    if stored.peek(1):
        raise Invalid(_field(block), "has bytes after its zstd frame")


class _Taker:
    """Takes given numbers of bytes out of chunks of any size."""

    def __init__(self, chunks: Iterable[bytes], block: Block) -> None:
        self._chunks = iter(chunks)
        self._block = block
        self._held = b""
        self._at = 0

    def peek(self, length: int) -> bytes:
        """The next `length` bytes, fewer at the end; they stay."""
        while len(self._held) - self._at < length:
            chunk = next(self._chunks, None)
            if chunk is None:
                break
            self._held, self._at = self._held[self._at :] + chunk, 0
        return self._held[self._at : self._at + length]

    def take(self, length: int) -> bytes:
        """The next `length` bytes. Raises Invalid when there are fewer."""
        taken = self.peek(length)
        if len(taken) != length:
            raise Invalid(_field(self._block), "ends inside its zstd frame")
        self._at += length
        return taken
