"""The bytes of an object on their way."""

from __future__ import annotations

import socket
import warnings
from collections.abc import Iterator
from types import TracebackType
from typing import Protocol, Self

from storage.errors import Unavailable
from storage.relay import Tap, can_relay, relay

CHUNK_BYTES = 1024 * 1024


class Reader(Protocol):
    """Anything that bytes can be read from: an open file, a request body, the Body of another store."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes; none at the end only."""
        ...


class Source(Reader, Protocol):
    """A reader that holds something until it is closed."""

    def close(self) -> None:
        """Let go; more than once is fine."""
        ...


class Body:
    """The bytes of one object, in one direction. Close it, best by `with`: it holds a connection."""

    def __init__(self, key: str, source: Source, size: int, etag: str = "") -> None:
        self.key = key
        self.size = size
        """Bytes of the whole object."""
        self.etag = etag
        """The version that is read, as `Stat.etag` and `Store.copy` know it."""
        self._source = source
        self._left = size
        self._closed = False

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes; none at the end only.

        Raises Unavailable when the store breaks off before the end, so that a part is never taken for the whole;
        DigestMismatch when the store keeps a checksum and the bytes differ from it.
        """
        if self._closed:
            raise ValueError(f"{self.key}: the body is closed")
        if size < 1:
            raise ValueError("size must be at least 1")
        chunk = self._source.read(min(size, self._left)) if self._left else b""
        if self._left and not chunk:
            raise self._broken_off()
        self._left -= len(chunk)
        # Reading past the end is what makes botocore compare its checksum, before the last chunk is handed out.
        if chunk and not self._left and self._source.read(1):
            raise Unavailable(self.key, "the store sent more bytes than it had announced")
        return chunk

    def __iter__(self) -> Iterator[bytes]:
        """Yield the rest in chunks of at most 1 MiB."""
        while chunk := self.read(CHUNK_BYTES):
            yield chunk

    def send_to(self, target: socket.socket) -> None:
        """Send the rest to a connected socket, past this process where that can be.

        Raises what `read` does, and OSError when the receiver goes away or does not read.
        """
        source = self._source
        if self._closed or not self._left or not isinstance(source, Tap) or not can_relay(target):
            for chunk in self:
                target.sendall(chunk)
            return
        ahead = source.read_ahead()
        target.sendall(ahead)
        self._left -= len(ahead)
        self._left -= relay(source, target, self._left)
        if self._left:
            raise self._broken_off()

    def _broken_off(self) -> Unavailable:
        return Unavailable(self.key, f"the store broke off {self._left} bytes before the end")

    def close(self) -> None:
        """Give the connection back; more than once is fine."""
        self._closed = True
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not self._closed:
            warnings.warn(f"{self.key}: body was never closed", ResourceWarning, source=self, stacklevel=2)
            self.close()
