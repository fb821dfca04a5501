"""The content of an object on its way: measured, cut into pieces, hashed."""

from __future__ import annotations

import hashlib
import io
from typing import TYPE_CHECKING, BinaryIO

from hub.errors import Invalid
from hub.pack.format import CHUNK

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def measure(content: bytes | BinaryIO) -> int:
    """Bytes from where `content` stands to its end; a stream must seek."""
    if isinstance(content, bytes):
        return len(content)
    here = content.tell()
    end = content.seek(0, io.SEEK_END)
    content.seek(here)
    return end - here


def pieces(content: bytes | BinaryIO, length: int, object_id: str) -> Iterator[bytes]:
    """The content in pieces of CHUNK bytes, the last one shorter.

    Raises Invalid unless it has `length` bytes. However a stream cuts its bytes, the pieces are the same:
    what is compressed depends on the content alone.
    """
    stream = io.BytesIO(content) if isinstance(content, bytes) else content
    left = length
    while left:
        wanted = min(CHUNK, left)
        piece = stream.read(wanted)
        while len(piece) < wanted and (more := stream.read(wanted - len(piece))):
            piece += more
        left -= len(piece)
        if len(piece) < wanted:
            raise Invalid(f"objects[{object_id}]", f"ends {left} bytes before its size, {length}")
        yield piece
    if stream.read(1):
        raise Invalid(f"objects[{object_id}]", f"is longer than its size, {length} bytes")


def check_content(chunks: Iterable[bytes], object_id: str) -> Iterator[bytes]:
    """Hand on the content of an object; raise Invalid at its end unless it has the id."""
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
        yield chunk
    if digest.hexdigest() != object_id:
        raise Invalid(f"objects[{object_id}]", f"its content has the id {digest.hexdigest()}")
