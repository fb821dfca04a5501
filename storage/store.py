"""The interface of every store, and what goes over it.

A store maps keys to immutable-by-habit objects: an object appears whole or not at all, and a reader that has
begun sees one version to its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from storage.body import Body, Reader

PART_BYTES_MIN = 5 * 1024 * 1024
"""The least that S3 takes as a part, but for the last one."""
PARTS_MAX = 10_000
"""The most parts that S3 takes."""


@dataclass(frozen=True, slots=True)
class Stat:
    """What a store knows of an object."""

    key: str
    size: int
    """Bytes."""
    etag: str
    """Differs between two versions of a key. Opaque: not a digest of the content."""
    modified_at: datetime
    """By the store's clock, to the second, with a time zone."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A request that somebody without credentials may send to the store until `expires_at`."""

    method: str
    url: str
    headers: dict[str, str]
    """To be sent as well; others are allowed."""
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class OpenUpload:
    """An upload in parts that was neither completed nor aborted."""

    key: str
    upload_id: str
    created_at: datetime
    """By the store's clock, to the second, with a time zone."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part that has arrived, of an upload in parts."""

    number: int
    """From 1 to PARTS_MAX."""
    size: int
    """Bytes."""
    etag: str


class Store(Protocol):
    """A place for objects. Every method may be called from many threads.

    Each raises InvalidKey for a key that `storage.keys` refuses, Unavailable when trying again may help, and
    StorageError when it won't.
    """

    def put(self, key: str, body: bytes | Reader, *, if_absent: bool = False, sha256: str | None = None) -> int:
        """Store `body`, read from where it stands to its end: visible all at once, or not at all. Returns its size.

        `sha256` (64 lower-case hex digits) is compared with what was read before anything is visible:
        DigestMismatch. With `if_absent` a taken key raises AlreadyExists, maybe before the body was read.
        After an answer that got lost, that may be our own doing; keys that are digests of the content make it a
        success. It is no lock: on SeaweedFS two large bodies that end at the same moment may both be told that
        they won; one of them stays, whole.
        """
        ...

    def get(self, key: str) -> Body:
        """Open the object. Raises NotFound."""
        ...

    def open_range(self, key: str, offset: int, length: int) -> Body:
        """Open exactly `length` (at least 1) bytes from `offset`. Raises NotFound; OutOfRange if there are fewer."""
        ...

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        """Return the bytes that `open_range` opens, as one."""
        with self.open_range(key, offset, length) as body:
            return read_up_to(body, length)

    def head(self, key: str) -> Stat:
        """Describe the object. Raises NotFound."""
        ...

    def delete(self, key: str) -> None:
        """Remove the object; that there is none is fine."""
        ...

    def list(self, prefix: str = "") -> Iterator[Stat]:
        """Yield the objects whose key begins with `prefix`, page by page, each key once, in the order of keys.

        Not a snapshot: what is written meanwhile may be there or not. SeaweedFS lists folder by folder, so
        where one name continues another by «-» or «.» (`a-b` beside `a/c`) the order is that of the segments.
        """
        ...

    def presign_get(self, key: str, *, expires: timedelta) -> Upload | None:
        """Sign a download of `key`, which need not exist. None: this store cannot."""
        ...

    def presign_put(self, key: str, *, expires: timedelta) -> Upload | None:
        """Sign an upload to `key`, with any headers. Nothing verifies what arrives. None: this store cannot."""
        ...

    def copy(self, source: str, key: str, *, etag: str) -> Stat:
        """Copy the version `etag` of `source` to `key` inside the store, over what is there; visible all at once.

        Raises NotFound when `source` is not there or has another etag.
        """
        ...

    def create_upload(self, key: str) -> str:
        """Begin an upload in parts to `key`; its id. Each call begins another. Nothing is visible before its end."""
        ...

    def put_part(self, key: str, upload_id: str, number: int, body: bytes) -> Part:
        """Send part `number`, in any order; again replaces it. Raises NotFound when the upload has ended."""
        ...

    def presign_part(self, key: str, upload_id: str, number: int, *, expires: timedelta) -> Upload | None:
        """Sign the sending of one part. Useless once the upload has ended. None: this store cannot."""
        ...

    def list_parts(self, key: str, upload_id: str) -> Iterator[Part]:
        """Yield the parts that have arrived, by number; SeaweedFS lists replaced ones, too. Raises NotFound."""
        ...

    def complete_upload(self, key: str, upload_id: str, parts: Sequence[Part]) -> Stat:
        """Make one object of `parts`, by number, over what is there; visible all at once.

        Each part but the last has PART_BYTES_MIN or more. Raises NotFound when the upload has ended; a store may also
        answer a repeated completion like the first.
        """
        ...

    def abort_upload(self, key: str, upload_id: str) -> None:
        """End an upload and drop its parts; that there is none is fine."""
        ...

    def list_uploads(self, prefix: str = "") -> Iterator[OpenUpload]:
        """Yield the unfinished uploads whose key begins with `prefix`, in any order; of SeaweedFS the first 1,000."""
        ...


def read_up_to(reader: Reader, size: int) -> bytes:
    """Return `size` bytes, fewer only at the end: a single read of a socket or a raw file may stop short."""
    pieces: list[bytes] = []
    while size > 0 and (piece := reader.read(size)):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def check_range(offset: int, length: int) -> None:
    """Raise ValueError for a range that is none."""
    if offset < 0 or length < 1:
        raise ValueError(f"a range of {length} bytes from {offset} is none: offset at least 0, length at least 1")
