"""A store in memory, for tests: stricter than S3 wherever code could come to rely on luck.

- an etag says nothing about the content; each write has a new one;
- listings come in pages of three, each read from what is there by then;
- reads of a body stop short, as those of sockets do;
- it cannot sign: code must have another way.
"""

from __future__ import annotations

import bisect
import hashlib
import io
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from storage.errors import AlreadyExists, DigestMismatch, NotFound, OutOfRange
from storage.keys import check_key, check_prefix
from storage.store import CHUNK_BYTES, Body, Reader, Stat, Store, Upload, check_range

PAGE_KEYS = 3
SHORT_READ_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class _Object:
    stat: Stat
    content: bytes


class _ShortReads(io.BytesIO):
    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(SHORT_READ_BYTES if size is None or size < 0 else min(size, SHORT_READ_BYTES))


class MemoryStore(Store):
    """Objects in a dict. `clock` gives the time of writes, with a time zone."""

    def __init__(self, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._clock = clock
        self._objects: dict[str, _Object] = {}
        self._keys: list[str] = []  # sorted
        self._writes = 0
        self._lock = threading.Lock()

    def put(self, key: str, body: bytes | Reader, *, if_absent: bool = False, sha256: str | None = None) -> Stat:
        check_key(key)
        # Read before the lock is taken: a slow body must not hold up the other threads.
        reader = io.BytesIO(body) if isinstance(body, bytes) else body
        content = b"".join(iter(lambda: reader.read(CHUNK_BYTES), b""))
        if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
            raise DigestMismatch(key)
        modified_at = self._clock().replace(microsecond=0)
        if modified_at.tzinfo is None:
            raise ValueError("the clock must give a time zone")
        with self._lock:
            if if_absent and key in self._objects:
                raise AlreadyExists(key)
            if key not in self._objects:
                bisect.insort(self._keys, key)
            self._writes += 1
            stat = Stat(key=key, size=len(content), etag=f"write-{self._writes}", modified_at=modified_at)
            self._objects[key] = _Object(stat, content)
        return stat

    def _object(self, key: str) -> _Object:
        check_key(key)
        with self._lock:
            if key not in self._objects:
                raise NotFound(key)
            return self._objects[key]

    def get(self, key: str) -> Body:
        found = self._object(key)
        return Body(key, _ShortReads(found.content), found.stat.size)

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        check_range(offset, length)
        found = self._object(key)
        if offset + length > found.stat.size:
            raise OutOfRange(key)
        return found.content[offset : offset + length]

    def head(self, key: str) -> Stat:
        return self._object(key).stat

    def delete(self, key: str) -> None:
        check_key(key)
        with self._lock:
            if self._objects.pop(key, None):
                self._keys.remove(key)

    def list(self, prefix: str = "") -> Iterator[Stat]:
        return self._pages(check_prefix(prefix))

    def _pages(self, prefix: str) -> Iterator[Stat]:
        after = ""
        while True:
            with self._lock:
                start = max(bisect.bisect_left(self._keys, prefix), bisect.bisect_right(self._keys, after))
                keys = self._keys[start : start + PAGE_KEYS]
                page = [self._objects[key].stat for key in keys if key.startswith(prefix)]
            if not page:
                return
            yield from page
            after = page[-1].key

    def presign_get(self, key: str, *, expires: timedelta) -> Upload | None:  # noqa: ARG002  (the interface)
        check_key(key)
        return None

    def presign_put(self, key: str, *, expires: timedelta) -> Upload | None:  # noqa: ARG002  (the interface)
        check_key(key)
        return None
