"""A role: a part of a store, under a prefix of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

from storage.errors import InvalidKey
from storage.keys import check_key, check_prefix
from storage.store import Body, Reader, Stat, Store, Upload


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

    def _part(self, stat: Stat) -> Stat:
        return replace(stat, key=check_key(stat.key.removeprefix(self._prefix)))

    def put(self, key: str, body: bytes | Reader, *, if_absent: bool = False, sha256: str | None = None) -> Stat:
        return self._part(self._store.put(self._whole(key), body, if_absent=if_absent, sha256=sha256))

    def get(self, key: str) -> Body:
        return self._store.get(self._whole(key))

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        return self._store.get_range(self._whole(key), offset, length)

    def head(self, key: str) -> Stat:
        return self._part(self._store.head(self._whole(key)))

    def delete(self, key: str) -> None:
        self._store.delete(self._whole(key))

    def list(self, prefix: str = "") -> Iterator[Stat]:
        return map(self._part, self._store.list(self._prefix + check_prefix(prefix)))

    def presign_get(self, key: str, *, expires: timedelta) -> Upload | None:
        return self._store.presign_get(self._whole(key), expires=expires)

    def presign_put(self, key: str, *, expires: timedelta) -> Upload | None:
        return self._store.presign_put(self._whole(key), expires=expires)
