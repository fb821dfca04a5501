"""The hub's tasks that nobody waits for: they keep the store clean. Workers run them when nothing else is due."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session

import tasks
from hub.archive import set_aside_if_damaged
from hub.errors import CorruptMpack
from hub.gc import collect
from hub.repack import is_due, repack
from hub.services import Services

GC = "gc"
REPACK = "mpack.repack"
LAST = -1
"""The priority of what nobody waits for."""


class Chores:
    """The chores, registered with `app`."""

    def __init__(self, app: tasks.App, services: Services, *, index: str) -> None:
        """`index`: the task that must be through with a repository's packs before they are folded."""
        retry = tasks.Exponential(base=30.0, cap=3600.0)

        @app.task(GC, bind=True, dedup=tasks.Dedup(), priority=LAST, retry=retry)
        def gc(self: tasks.Context) -> dict[str, Any]:
            """Delete what nothing in the repository names any more."""
            return collect(services, UUID(self.scope)).counts()

        @app.periodic("23 3 * * *", tz="UTC", missed="one")
        @app.task("gc.all", priority=LAST, retry=retry)
        def gc_all() -> dict[str, Any]:
            """Delete what nothing names any more, in the whole store: also where nobody has pushed for long."""
            return collect(services).counts()

        @app.task(
            REPACK,
            bind=True,
            transactional=True,
            tier=2,
            gate=tasks.After(index),
            dedup=tasks.Dedup(),
            priority=LAST,
            retry=retry,
        )
        def fold(self: tasks.Context) -> dict[str, int]:
            """Fold the repository's small packs into one."""
            try:
                return repack(services, self.session, UUID(self.scope), self.checkpoint)
            except CorruptMpack as error:
                self.session.rollback()
                if set_aside_if_damaged(services, UUID(self.scope), error.mpack_id):
                    raise tasks.Quarantine("MPACK_CORRUPT", str(error)) from error
                raise

        self.gc = gc
        self.repack = fold
        self.gc_all = gc_all

    def enqueue_push(self, session: Session, repository_id: UUID) -> list[UUID]:
        """Queue the chores that follow from a push, in its transaction; each joins one that waits already."""
        chores = [self.gc]
        if is_due(session, repository_id):
            chores.append(self.repack)
        return [chore.apply_async(session=session, scope=str(repository_id)).id for chore in chores]
