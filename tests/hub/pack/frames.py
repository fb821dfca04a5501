"""zstd frames built by hand, to say what no compressor says. RFC 8878 has the layout."""

from __future__ import annotations

MAGIC = b"\x28\xb5\x2f\xfd"
RAW, RLE, COMPRESSED, RESERVED = 0, 1, 2, 3


def block(kind: int, size: int, content: bytes, *, last: bool = False) -> bytes:
    """One zstd block; `size` is what its header says."""
    return (int(last) | kind << 1 | size << 3).to_bytes(3, "little") + content


def frame(content_size: int, *blocks: bytes, descriptor: int = 0xA0, extra: bytes = b"") -> bytes:
    """A frame that declares `content_size`: a single segment, unless `descriptor` says otherwise."""
    return MAGIC + bytes([descriptor]) + extra + content_size.to_bytes(4, "little") + b"".join(blocks)


def zeros(length: int) -> list[bytes]:
    """Blocks that unfold into `length` zeros, four bytes for each 128 KiB."""
    whole, rest = divmod(length, 128 * 1024)
    sizes = [128 * 1024] * whole + ([rest] if rest else [])
    return [block(RLE, size, b"\0", last=number == len(sizes) - 1) for number, size in enumerate(sizes)]


def windowed(content_size: int, window_log: int, *blocks: bytes) -> bytes:
    """A frame with a window of its own."""
    return frame(content_size, *blocks, descriptor=0x80, extra=bytes([(window_log - 10) << 3]))
