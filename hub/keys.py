"""Names of stored packs: in the archive, in the cache, in staging, and on the wire."""

from __future__ import annotations

import re
from uuid import UUID

from hub.errors import Invalid

STAGING = "staging/"
"""What lies here in the archive store is uploaded and unverified."""
MPACK_KEY = re.compile(r"mpacks/([0-9a-f]{64})")


def mpack_key(mpack_id: str) -> str:
    """The pack's name within its repository, as the wire and the jobs' payloads say it."""
    return f"mpacks/{mpack_id}"


def mpack_id_of(key: object) -> str:
    """The pack that an `mpack_key` names; Invalid for anything else."""
    match = MPACK_KEY.fullmatch(key) if isinstance(key, str) else None
    if match is None:
        raise Invalid("mpack_key", "must be the key that push/mpack/presign answered.")
    return match[1]


def staging_key(repository_id: UUID, mpack_id: str) -> str:
    """Where an upload waits for its verification; whoever holds its URL can replace it."""
    return f"{STAGING}{repository_id}/{mpack_id}"


def upload_key(repository_id: UUID, object_id: str) -> str:
    """Where a single object waits for its verification; whoever holds its URL can replace it."""
    return f"uploads/{repository_id}/{object_id}"


def archive_key(repository_id: UUID, mpack_id: str) -> str:
    """Where a verified pack lies: named by its own digest, written once."""
    return f"mpacks/{repository_id}/{mpack_id}"


def body_key(repository_id: UUID, body_id: str) -> str:
    """Where the ready-made body of a Muse `fetch` lies: named by its own digest, as a built pack is."""
    return f"bodies/{repository_id}/{body_id}"


def cache_key(repository_id: UUID, mpack_id: str) -> str:
    """Where a built pack lies: named by its own digest, so a late writer can only write the same bytes."""
    return f"mpacks/{repository_id}/{mpack_id}"
