"""Objects that are uploaded before the push that needs them: verified, packed and stored, but part of nothing yet."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import BinaryIO, Self
from uuid import UUID

from sqlalchemy import text, update
from sqlalchemy.dialects.postgresql import insert

from hub import records
from hub.archive import secure_pack, store_pack, take_back
from hub.errors import Invalid
from hub.held import held_objects
from hub.models import Mpack
from hub.models.doomed import instant
from hub.models.repository import lock_repository
from hub.pack.writer import PackWriter
from hub.services import Services

BATCH_BYTES = 8 * 1024 * 1024
"""Content that waits for one look-up of what is held already."""


@dataclass(frozen=True, slots=True)
class Staged:
    """How many objects were stored, and how many were held already."""

    stored: int
    skipped: int


class StagedPack:
    """A pack of objects for a later push to adopt. Nothing is stored before `store`."""

    def __init__(self, services: Services, repository_id: UUID) -> None:
        self._services = services
        self._repository_id = repository_id
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  # closed by __exit__
        self._writer = PackWriter(self._file)
        self.object_ids: list[str] = []
        self.content_bytes = 0

    def add(self, object_id: str, content: bytes | BinaryIO, size: int) -> None:
        """Add an object of `size` bytes. Raises Invalid when its content has another id."""
        self._writer.add_object(object_id, content, size)
        self.object_ids.append(object_id)
        self.content_bytes += size

    def store(self) -> None:
        """Store the pack, unless it is empty. The same objects make the same pack. Raises storage's errors."""
        if not self.object_ids:
            return
        summary = self._writer.finish()
        with self._services.sessions() as session:
            begun_at = instant(session)
        store_pack(self._services, self._repository_id, summary.mpack_id, self._file)
        with self._services.sessions.begin() as session:
            lock_repository(session, self._repository_id)
            secure_pack(self._services, session, self._repository_id, summary.mpack_id, self._file, begun_at)
            session.execute(
                insert(Mpack)
                .values(
                    repository_id=self._repository_id,
                    mpack_id=summary.mpack_id,
                    state="staged",
                    size=summary.size,
                    object_ids=self.object_ids,
                )
                .on_conflict_do_nothing()
            )
            take_back(session, self._repository_id, summary.mpack_id, "staged")
            # Sent again: its day begins anew.
            session.execute(
                update(Mpack)
                .where(
                    Mpack.repository_id == self._repository_id,
                    Mpack.mpack_id == summary.mpack_id,
                    Mpack.state == "staged",
                )
                .values(created_at=text("now()"))
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def stage_objects(services: Services, repository_id: UUID, objects: Iterable[tuple[str, bytes]]) -> Staged:
    """Pack the objects that the repository does not hold and store the pack.

    Idempotent. Raises Invalid for content that isn't its id's; then nothing is stored.
    """
    count = 0
    with StagedPack(services, repository_id) as pack:
        batch: dict[str, bytes] = {}
        waiting = 0

        def flush() -> None:
            with services.sessions() as session:
                held = held_objects(session, repository_id, batch)
            for object_id, content in batch.items():
                if object_id not in held:
                    pack.add(object_id, content, len(content))
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
        pack.store()
        stored = len(pack.object_ids)
    return Staged(stored, count - stored)
