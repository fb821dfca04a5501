"""What can go wrong at a store.

StorageError
├── NotFound        no such key: the store said so
├── AlreadyExists   a conditional put found the key taken
├── DigestMismatch  the bytes are not those of the digest
├── OutOfRange      the object ends before the bytes asked for
├── AccessDenied    the store does not let us in: keys, rights, no such bucket; trying again won't help
├── Unavailable     the store did not answer, or said «not now»; trying again may help
└── InvalidKey      a key that no store takes (also a ValueError)

A plain StorageError is a request that trying again won't change.
Only NotFound means absent. Every class' docstring is its message.
"""

from __future__ import annotations


class StorageError(Exception):
    """The store refused."""

    def __init__(self, key: str, detail: str | None = None) -> None:
        super().__init__(key, detail)
        self.key = key
        self.detail = detail or (type(self).__doc__ or "")

    def __str__(self) -> str:
        return f"{self.key}: {self.detail}"


class NotFound(StorageError):
    """There is no object of this key."""


class AlreadyExists(StorageError):
    """There is an object of this key already."""


class DigestMismatch(StorageError):
    """The bytes are not those of the digest."""


class OutOfRange(StorageError):
    """The object ends before the bytes asked for."""


class AccessDenied(StorageError):
    """The store does not let us in."""


class Unavailable(StorageError):
    """The store did not answer."""

    def __init__(self, key: str, detail: str | None = None, *, retry_after: float | None = None) -> None:
        super().__init__(key, detail)
        self.retry_after = retry_after
        """Seconds that the store asked to wait, if it did."""


class InvalidKey(StorageError, ValueError):
    """This is not a key."""
