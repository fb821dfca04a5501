"""A role: a part of a store, under a prefix of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

from storage.body import Body, Reader
from storage.errors import InvalidKey
from storage.keys import check_key, check_prefix
from storage.store import OpenUpload, Part, Stat, Store, Upload


class Prefixed(Store):
    """The objects of `store` whose keys begin with `prefix`, e.g. "archive/", under keys without it.

    Errors name the whole key, as an operator finds it in the bucket.
    """

    def __init__(self, store: Store, prefix: str) -> None:
        if not prefix.endswith("/"):
            raise InvalidKey(prefix, "the prefix of a role ends with «/»")
        check_key(prefix.removesuffix("/"))
        self._store = store
        self._prefix = prefix

    def _whole(self, key: str) -> str:
        # Checked before joining: an empty key would otherwise be the prefix itself.
        return self._prefix + check_key(key)

    def _own(self, stat: Stat) -> Stat:
        return replace(stat, key=check_key(stat.key.removeprefix(self._prefix)))

    def put(self, key: str, body: bytes | Reader, *, if_absent: bool = False, sha256: str | None = None) -> int:
        return self._store.put(self._whole(key), body, if_absent=if_absent, sha256=sha256)

    def get(self, key: str) -> Body:
        return self._store.get(self._whole(key))

    def open_range(self, key: str, offset: int, length: int) -> Body:
        return self._store.open_range(self._whole(key), offset, length)

    def head(self, key: str) -> Stat:
        return self._own(self._store.head(self._whole(key)))

    def delete(self, key: str) -> None:
        self._store.delete(self._whole(key))

    def list(self, prefix: str = "") -> Iterator[Stat]:
        return map(self._own, self._store.list(self._prefix + check_prefix(prefix)))

    def presign_get(self, key: str, *, expires: timedelta) -> Upload | None:
        return self._store.presign_get(self._whole(key), expires=expires)

    def presign_put(self, key: str, *, expires: timedelta) -> Upload | None:
        return self._store.presign_put(self._whole(key), expires=expires)

    def copy(self, source: str, key: str, *, etag: str) -> Stat:
        return self._own(self._store.copy(self._whole(source), self._whole(key), etag=etag))

    def create_upload(self, key: str) -> str:
        return self._store.create_upload(self._whole(key))

    def put_part(self, key: str, upload_id: str, number: int, body: bytes) -> Part:
        return self._store.put_part(self._whole(key), upload_id, number, body)

    def presign_part(self, key: str, upload_id: str, number: int, *, expires: timedelta) -> Upload | None:
        return self._store.presign_part(self._whole(key), upload_id, number, expires=expires)

    def list_parts(self, key: str, upload_id: str) -> Iterator[Part]:
        return self._store.list_parts(self._whole(key), upload_id)

    def complete_upload(self, key: str, upload_id: str, parts: Sequence[Part]) -> Stat:
        return self._own(self._store.complete_upload(self._whole(key), upload_id, parts))

    def abort_upload(self, key: str, upload_id: str) -> None:
        self._store.abort_upload(self._whole(key), upload_id)

    def list_uploads(self, prefix: str = "") -> Iterator[OpenUpload]:
        for found in self._store.list_uploads(self._prefix + check_prefix(prefix)):
            yield replace(found, key=check_key(found.key.removeprefix(self._prefix)))
