"""A store that fails on purpose, for tests: by a script, by a seed, or at a hook."""

from __future__ import annotations

import random
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from enum import Enum
from typing import TypeVar

from storage.body import Body, Reader
from storage.errors import Unavailable
from storage.store import OpenUpload, Part, Stat, Store, Upload

T = TypeVar("T")
Hook = Callable[[str, str, str], None]
"""Called as hook(op, key, phase)."""
OPERATIONS = (
    "put", "get", "open_range", "get_range", "head", "delete", "list", "copy",
    "create_upload", "put_part", "list_parts", "complete_upload", "abort_upload", "list_uploads",
)  # fmt: skip
"""What can fail. Presigning asks nobody, so it never does."""


class Fault(Enum):
    """How an operation fails. Each raises Unavailable."""

    REFUSED = "refused"
    """Nothing was done."""
    ANSWER_LOST = "answer_lost"
    """Everything was done, and the answer timed out."""
    BROKEN_OFF = "broken_off"
    """A body or a listing ends in the middle; other operations: as REFUSED."""


def _no_hook(op: str, key: str, phase: str) -> None:
    """Do nothing."""


class FaultyStore(Store):
    """`store`, with faults.

    script: pairs of operation and fault, e.g. `("put", Fault.ANSWER_LOST)`; the n-th pair of an operation says
        what happens to the n-th call of it (None: it works). Calls beyond the script fail by chance:
    rate: the share of calls that fail, 0 to 1, drawn from `seed`: the same calls fail in the same way.
    hook: called as hook(op, key, phase) in the calling thread, with phase "before" and, once the operation has
        succeeded underneath, "after". It may wait (a race is held open) or raise (that is then the outcome).
        It is called for "presign_get", "presign_put" and "presign_part" too.
    """

    def __init__(
        self,
        store: Store,
        *,
        seed: int = 0,
        rate: float = 0.0,
        script: Iterable[tuple[str, Fault | None]] = (),
        hook: Hook = _no_hook,
    ) -> None:
        self._store = store
        self._random = random.Random(seed)  # noqa: S311  (repeatable, not secret)
        self._rate = rate
        self._script: dict[str, deque[Fault | None]] = defaultdict(deque)
        for op, fault in script:
            if op not in OPERATIONS:
                raise ValueError(f"{op} is not an operation; those are {', '.join(OPERATIONS)}")
            self._script[op].append(fault)
        self._hook = hook
        self._lock = threading.Lock()

    def _next_fault(self, op: str) -> Fault | None:
        with self._lock:
            if self._script[op]:
                return self._script[op].popleft()
            if self._random.random() < self._rate:
                return self._random.choice(list(Fault))
            return None

    def _run(self, op: str, key: str, call: Callable[[], T], *, breaks: Callable[[T], T] | None = None) -> T:
        """Make the call between its hooks; `breaks` cuts its result short."""
        self._hook(op, key, "before")
        fault = self._next_fault(op)
        if fault is Fault.REFUSED or (fault is Fault.BROKEN_OFF and breaks is None):
            raise Unavailable(key, f"{op} was refused on purpose")
        result = call()
        try:
            self._hook(op, key, "after")
        except BaseException:
            _close(result)
            raise
        if fault is Fault.ANSWER_LOST:
            _close(result)
            raise Unavailable(key, f"{op} was done, its answer timed out on purpose")
        return breaks(result) if breaks and fault is Fault.BROKEN_OFF else result

    def put(self, key: str, body: bytes | Reader, *, if_absent: bool = False, sha256: str | None = None) -> int:
        return self._run("put", key, lambda: self._store.put(key, body, if_absent=if_absent, sha256=sha256))

    def get(self, key: str) -> Body:
        return self._run("get", key, lambda: self._store.get(key), breaks=_break_body)

    def open_range(self, key: str, offset: int, length: int) -> Body:
        return self._run("open_range", key, lambda: self._store.open_range(key, offset, length), breaks=_break_body)

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        return self._run("get_range", key, lambda: self._store.get_range(key, offset, length))

    def head(self, key: str) -> Stat:
        return self._run("head", key, lambda: self._store.head(key))

    def delete(self, key: str) -> None:
        self._run("delete", key, lambda: self._store.delete(key))

    def list(self, prefix: str = "") -> Iterator[Stat]:
        return self._run(
            "list", prefix, lambda: self._store.list(prefix), breaks=lambda found: _break_listing(prefix, found)
        )

    def presign_get(self, key: str, *, expires: timedelta) -> Upload | None:
        self._hook("presign_get", key, "before")
        signed = self._store.presign_get(key, expires=expires)
        self._hook("presign_get", key, "after")
        return signed

    def presign_put(self, key: str, *, expires: timedelta) -> Upload | None:
        self._hook("presign_put", key, "before")
        signed = self._store.presign_put(key, expires=expires)
        self._hook("presign_put", key, "after")
        return signed

    def copy(self, source: str, key: str, *, etag: str) -> Stat:
        return self._run("copy", key, lambda: self._store.copy(source, key, etag=etag))

    def create_upload(self, key: str) -> str:
        return self._run("create_upload", key, lambda: self._store.create_upload(key))

    def put_part(self, key: str, upload_id: str, number: int, body: bytes) -> Part:
        return self._run("put_part", key, lambda: self._store.put_part(key, upload_id, number, body))

    def presign_part(self, key: str, upload_id: str, number: int, *, expires: timedelta) -> Upload | None:
        self._hook("presign_part", key, "before")
        signed = self._store.presign_part(key, upload_id, number, expires=expires)
        self._hook("presign_part", key, "after")
        return signed

    def list_parts(self, key: str, upload_id: str) -> Iterator[Part]:
        return self._run(
            "list_parts", key,
            lambda: self._store.list_parts(key, upload_id),
            breaks=lambda found: _break_listing(key, found),
        )  # fmt: skip

    def complete_upload(self, key: str, upload_id: str, parts: Sequence[Part]) -> Stat:
        return self._run("complete_upload", key, lambda: self._store.complete_upload(key, upload_id, parts))

    def abort_upload(self, key: str, upload_id: str) -> None:
        self._run("abort_upload", key, lambda: self._store.abort_upload(key, upload_id))

    def list_uploads(self, prefix: str = "") -> Iterator[OpenUpload]:
        return self._run(
            "list_uploads", prefix,
            lambda: self._store.list_uploads(prefix),
            breaks=lambda found: _break_listing(prefix, found),
        )  # fmt: skip


def _close(result: object) -> None:
    if isinstance(result, Body):
        result.close()


class _BrokenSource:
    """The first half of a body, and then its end."""

    def __init__(self, body: Body) -> None:
        self._body = body
        self._left = body.size // 2

    def read(self, size: int, /) -> bytes:
        chunk = self._body.read(min(size, self._left)) if self._left else b""
        self._left -= len(chunk)
        return chunk

    def close(self) -> None:
        self._body.close()


def _break_body(body: Body) -> Body:
    return Body(body.key, _BrokenSource(body), body.size, body.etag)


def _break_listing(key: str, listing: Iterator[T]) -> Iterator[T]:
    first = next(listing, None)
    if first is not None:
        yield first
        raise Unavailable(key, "the listing broke off on purpose")
