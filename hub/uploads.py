"""Single objects that the Muse client uploads by URL, mostly straight into the store, before the push that needs them.

The store tells nobody that an upload has arrived, and does not know what an id is. So the hub remembers what it
gave URLs for, looks when the objects are asked for, hashes what it finds, and moves it into a staged pack.
"""

from __future__ import annotations

import hashlib
import math
import tempfile
import time
from collections.abc import Iterable
from uuid import UUID

from sqlalchemy import text

from hub.errors import HubError, Invalid, TooLarge
from hub.held import held_objects
from hub.keys import upload_key
from hub.models.sets import bites
from hub.services import Services
from hub.staging import StagedPack
from storage import NotFound

MUSE_OBJECT_BYTES = 66_000_000
"""Largest object that is taken from the Muse client: with what is around it, a larger one would not fit into the 64 MiB
of an answer that this client reads, and no clone by it would ever be whole."""
UPLOAD_BYTES = 256 * 1024 * 1024
"""Largest object that the Muse client reads from its disk. The hub's own URLs take one above MUSE_OBJECT_BYTES, as the
store's do: the push refuses it with a sentence, while a refused upload is a traceback of that client."""
PRESIGNED_MAX = 50_000
"""URLs in one answer: about 500 bytes each, of the 64 MiB that the client reads, and some seconds to sign."""
PACK_BYTES = 256 * 1024 * 1024
"""Content of one staged pack, roughly: large objects go into the next one."""


def expect_uploads(services: Services, repository_id: UUID, object_ids: Iterable[str]) -> None:
    """Remember that URLs were handed out for these objects: `collect_uploads` looks for them."""
    with services.sessions.begin() as session:
        for bite in bites(sorted(object_ids)):
            session.execute(REMEMBER, {"repository_id": repository_id, "ids": bite})


def collect_uploads(
    services: Services, repository_id: UUID, object_ids: Iterable[str], *, until: float = math.inf
) -> dict[str, HubError]:
    """Stage those of the objects whose presigned upload has arrived; begin with none after `until` (monotonic clock).

    Returns the refused ones and why: their uploads have been removed, and count as not sent. Raises storage's errors.
    """
    waiting = _waiting(services, repository_id, object_ids)
    refused: dict[str, HubError] = {}
    while waiting and time.monotonic() < until:
        done: list[str] = []
        with StagedPack(services, repository_id) as pack:
            while waiting and pack.content_bytes < PACK_BYTES and time.monotonic() < until:
                object_id = waiting.pop()
                if _take(services, repository_id, object_id, pack, refused):
                    done.append(object_id)
            pack.store()
        for object_id in done:
            services.archive.delete(upload_key(repository_id, object_id))
        with services.sessions.begin() as session:
            for bite in bites(done):
                session.execute(FORGET, {"repository_id": repository_id, "ids": bite})
    return refused


def _take(
    services: Services, repository_id: UUID, object_id: str, pack: StagedPack, refused: dict[str, HubError]
) -> bool:
    """Bring one upload into the pack, or say why not; False while it has not arrived."""
    digest = hashlib.sha256()
    most = min(services.settings.max_object_bytes, MUSE_OBJECT_BYTES)
    with tempfile.TemporaryFile() as file:
        try:
            with services.archive.get(upload_key(repository_id, object_id)) as body:
                size = body.size
                for chunk in body if size <= most else ():
                    digest.update(chunk)
                    file.write(chunk)
        except NotFound:
            return False
        if size > most:
            refused[object_id] = TooLarge(
                f"Object {object_id[:12]} has {size} bytes, and the Muse client can be sent {most} at most. "
                "Push this repository with `packhouse push` and get it with `packhouse clone`."
            )
            return True
        if digest.hexdigest() != object_id:
            refused[object_id] = Invalid(f"objects[{object_id}]", "its upload had other bytes; push again.")
            return True
        file.seek(0)
        pack.add(object_id, file, size)
        return True


def _waiting(services: Services, repository_id: UUID, object_ids: Iterable[str]) -> list[str]:
    """Those of the objects that were presigned and are not held."""
    with services.sessions() as session:
        found = [
            bytes(object_id).hex()
            for bite in bites(object_ids)
            for (object_id,) in session.execute(PRESIGNED, {"repository_id": repository_id, "ids": bite})
        ]
        return sorted(set(found) - held_objects(session, repository_id, found), reverse=True)


REMEMBER = text("""
INSERT INTO hub.presigned_object (repository_id, object_id)
SELECT :repository_id, unnest(:ids)
ON CONFLICT (repository_id, object_id) DO UPDATE SET presigned_at = now()
""")

PRESIGNED = text("""
SELECT object_id FROM hub.presigned_object WHERE repository_id = :repository_id AND object_id = ANY(:ids)
""")

FORGET = text("""
DELETE FROM hub.presigned_object WHERE repository_id = :repository_id AND object_id = ANY(:ids)
""")
