"""Objects that are uploaded before the push that needs them: verified, packed and stored, but part of nothing yet."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy.dialects.postgresql import insert

from hub import records
from hub.archive import store_pack, take_back
from hub.errors import Invalid
from hub.held import held_objects
from hub.models import Mpack
from hub.pack.writer import PackWriter
from hub.services import Services

BATCH_BYTES = 8 * 1024 * 1024
"""Content that waits for one look-up of what is held already."""


@dataclass(frozen=True, slots=True)
class Staged:
    """How many objects were stored, and how many were held already."""

    stored: int
    skipped: int


def stage_objects(services: Services, repository_id: UUID, objects: Iterable[tuple[str, bytes]]) -> Staged:
    """Pack the objects that the repository does not hold and store the pack, for a later push to adopt.

    Idempotent: the same objects make the same pack. Raises Invalid for content that isn't its id's; then nothing is
    stored.
    """
    stored: list[str] = []
    count = 0
    with tempfile.TemporaryFile() as file:
        writer = PackWriter(file)
        batch: dict[str, bytes] = {}
        waiting = 0

        def flush() -> None:
            with services.sessions() as session:
                held = held_objects(session, repository_id, batch)
            for object_id, content in batch.items():
                if object_id not in held:
                    writer.add_object(object_id, content)
                    stored.append(object_id)
            batch.clear()

        for object_id, content in objects:
            # A wrong upload is refused whatever lies here already, and whatever follows it.
            if object_id != records.object_id(content):
                raise Invalid(f"objects[{object_id}]", "its content has another id.")
            count += 1
            batch[object_id] = content
            waiting += len(content)
            if waiting > BATCH_BYTES:
                flush()
                waiting = 0
        flush()
        if not stored:
            return Staged(0, count)
        summary = writer.finish()
        store_pack(services, repository_id, summary.mpack_id, file)
    with services.sessions.begin() as session:
        session.execute(
            insert(Mpack)
            .values(
                repository_id=repository_id,
                mpack_id=summary.mpack_id,
                state="staged",
                size=summary.size,
                object_ids=stored,
            )
            .on_conflict_do_nothing()
        )
        take_back(session, repository_id, summary.mpack_id, "staged")
    return Staged(len(stored), count - len(stored))
