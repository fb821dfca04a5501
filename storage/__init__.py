"""Where bytes are kept: one interface over S3, memory, and a store that fails on purpose."""

from storage.body import Body, Reader
from storage.errors import (
    AccessDenied,
    AlreadyExists,
    DigestMismatch,
    InvalidKey,
    NotFound,
    OutOfRange,
    StorageError,
    Unavailable,
)
from storage.faults import Fault, FaultyStore
from storage.memory import MemoryStore
from storage.prefixed import Prefixed
from storage.s3 import S3Settings, S3Store, open_store
from storage.store import OpenUpload, Part, Stat, Store, Upload

__all__ = [
    "AccessDenied",
    "AlreadyExists",
    "Body",
    "DigestMismatch",
    "Fault",
    "FaultyStore",
    "InvalidKey",
    "MemoryStore",
    "NotFound",
    "OpenUpload",
    "OutOfRange",
    "Part",
    "Prefixed",
    "Reader",
    "S3Settings",
    "S3Store",
    "Stat",
    "StorageError",
    "Store",
    "Unavailable",
    "Upload",
    "open_store",
]
