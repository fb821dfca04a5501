"""A store in memory, for tests: stricter than S3 wherever code could come to rely on luck.

- an etag says nothing about the content; each write has a new one;
- listings come in pages of three, each read from what is there by then;
- reads of a body stop short, as those of sockets do;
- it cannot sign: code must have another way;
- it forgets an upload in parts the moment it is completed.
"""

from __future__ import annotations

import bisect
import hashlib
import io
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from storage.body import CHUNK_BYTES, Body, Reader
from storage.errors import AlreadyExists, DigestMismatch, NotFound, OutOfRange, StorageError
from storage.keys import check_key, check_prefix
from storage.store import PART_BYTES_MIN, PARTS_MAX, OpenUpload, Part, Stat, Store, Upload, check_range

PAGE_KEYS = 3
SHORT_READ_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class _Object:
    stat: Stat
    content: bytes


@dataclass(frozen=True, slots=True)
class _Parts:
    upload: OpenUpload
    parts: dict[int, tuple[Part, bytes]] = field(default_factory=dict)


class _ShortReads(io.BytesIO):
    """Reads `length` bytes of the content from `offset` on, without a copy of all of them."""

    def __init__(self, content: bytes, offset: int, length: int) -> None:
        super().__init__(content)
        self.seek(offset)
        self._end = offset + length

    def read(self, size: int | None = -1, /) -> bytes:
        most = min(SHORT_READ_BYTES, self._end - self.tell())
        return super().read(most if size is None or size < 0 else min(size, most))


class MemoryStore(Store):
    """Objects in a dict. `clock` gives the time of writes, with a time zone."""

    def __init__(self, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._clock = clock
        self._objects: dict[str, _Object] = {}
        self._keys: list[str] = []  # sorted
        self._uploads: dict[str, _Parts] = {}
        self._writes = 0
        self._lock = threading.Lock()

    def put(self, key: str, body: bytes | Reader, *, if_absent: bool = False, sha256: str | None = None) -> int:
        check_key(key)
        # Read before the lock is taken: a slow body must not hold up the other threads.
        reader = io.BytesIO(body) if isinstance(body, bytes) else body
        content = b"".join(iter(lambda: reader.read(CHUNK_BYTES), b""))
        if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
            raise DigestMismatch(key)
        now = self._now()
        with self._lock:
            if if_absent and key in self._objects:
                raise AlreadyExists(key)
            return self._write(key, content, now).size

    def _now(self) -> datetime:
        now = self._clock().replace(microsecond=0)
        if now.tzinfo is None:
            raise ValueError("the clock must give a time zone")
        return now

    def _write(self, key: str, content: bytes, now: datetime) -> Stat:
        """Let the object be there; the caller holds the lock."""
        if key not in self._objects:
            bisect.insort(self._keys, key)
        self._writes += 1
        stat = Stat(key=key, size=len(content), etag=f"write-{self._writes}", modified_at=now)
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
        return Body(key, _ShortReads(found.content, 0, found.stat.size), found.stat.size, found.stat.etag)

    def open_range(self, key: str, offset: int, length: int) -> Body:
        check_range(offset, length)
        found = self._object(key)
        if offset + length > found.stat.size:
            raise OutOfRange(key)
        return Body(key, _ShortReads(found.content, offset, length), length, found.stat.etag)

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

    def copy(self, source: str, key: str, *, etag: str) -> Stat:
        found = self._object(source)
        check_key(key)
        if found.stat.etag != etag:
            raise NotFound(source, "There is no such version of this object.")
        now = self._now()
        with self._lock:
            return self._write(key, found.content, now)

    def create_upload(self, key: str) -> str:
        check_key(key)
        now = self._now()
        with self._lock:
            self._writes += 1
            upload_id = f"upload-{self._writes}"
            self._uploads[upload_id] = _Parts(OpenUpload(key, upload_id, now))
        return upload_id

    def _open(self, key: str, upload_id: str) -> _Parts:
        """Find an unfinished upload; the caller holds the lock."""
        found = self._uploads.get(upload_id)
        if found is None or found.upload.key != check_key(key):
            raise NotFound(key, "There is no such unfinished upload.")
        return found

    def put_part(self, key: str, upload_id: str, number: int, body: bytes) -> Part:
        if not 1 <= number <= PARTS_MAX:
            raise ValueError(f"number must be between 1 and {PARTS_MAX}")
        with self._lock:
            found = self._open(key, upload_id)
            self._writes += 1
            part = Part(number, len(body), f"write-{self._writes}")
            found.parts[number] = (part, body)
        return part

    def presign_part(self, key: str, upload_id: str, number: int, *, expires: timedelta) -> Upload | None:  # noqa: ARG002  (the interface)
        check_key(key)
        return None

    def list_parts(self, key: str, upload_id: str) -> Iterator[Part]:
        with self._lock:
            parts = self._open(key, upload_id).parts
            return iter([parts[number][0] for number in sorted(parts)])

    def complete_upload(self, key: str, upload_id: str, parts: Sequence[Part]) -> Stat:
        now = self._now()
        with self._lock:
            arrived = self._open(key, upload_id).parts
            numbers = [part.number for part in parts]
            if not parts or numbers != sorted(set(numbers)):
                raise StorageError(key, "the parts are not in order, each once")
            if any(part != arrived.get(part.number, (None,))[0] for part in parts):
                raise StorageError(key, "a part has not arrived, or was replaced")
            if any(part.size < PART_BYTES_MIN for part in parts[:-1]):
                raise StorageError(key, "a part before the last one is too small")
            del self._uploads[upload_id]
            return self._write(key, b"".join(arrived[number][1] for number in numbers), now)

    def abort_upload(self, key: str, upload_id: str) -> None:
        check_key(key)
        with self._lock:
            if upload_id in self._uploads:
                self._open(key, upload_id)
                del self._uploads[upload_id]

    def list_uploads(self, prefix: str = "") -> Iterator[OpenUpload]:
        check_prefix(prefix)
        with self._lock:
            return iter([found.upload for found in self._uploads.values() if found.upload.key.startswith(prefix)])
