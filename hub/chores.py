"""The hub's tasks that nobody waits for: they keep the store clean. Workers run them when nothing else is due."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session

import tasks
from hub.gc import collect
from hub.services import Services

GC = "gc"
LAST = -1
"""The priority of what nobody waits for."""


class Chores:
    """The chores, registered with `app`."""

    def __init__(self, app: tasks.App, services: Services) -> None:
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

        self.gc = gc
        self.gc_all = gc_all

    def enqueue_push(self, session: Session, repository_id: UUID) -> list[UUID]:
        """Queue the chores that follow from a push, in its transaction; each joins one that waits already."""
        return [self.gc.apply_async(session=session, scope=str(repository_id)).id]
