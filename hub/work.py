"""The hub's tasks: what follows from a push. Each calls one module and says how its errors end."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy.orm import Session

import tasks
from hub.archive import set_aside, set_aside_if_damaged
from hub.chores import Chores
from hub.errors import CorruptMpack, FetchNotIndexed
from hub.indexing import index_mpack
from hub.keys import mpack_key
from hub.prebuild import OVERTAKEN, live_tips, prebuild
from hub.services import Services
from tasks.queue import list_jobs

INDEX = "mpack.index"
PREBUILD = "fetch.mpack.prebuild"
TIPS_SHOWN = 100
"""Tips that a prebuild's payload shows; it is read by people only, and a payload has a cap."""


class Work:
    """The hub's tasks, bound to the services of this process. `app` is what workers and the command line run."""

    def __init__(self, services: Services) -> None:
        self.app = tasks.App("packhouse")
        self.app.configure(database_url=services.settings.database_url, session=services.sessions)
        retry = tasks.Exponential(base=2.0, cap=300.0)

        @self.app.task(INDEX, bind=True, transactional=True, dedup=tasks.Dedup(by=("mpack_key",)), retry=retry)
        def index(self: tasks.Context, *, mpack_key: str, head: str, branch: str) -> dict[str, int]:
            """Write the byte ranges of one pushed pack. `head` and `branch` are for observation."""
            try:
                return {"entries": index_mpack(services, self.session, UUID(self.scope), mpack_key)}
            except CorruptMpack as error:
                self.session.rollback()
                set_aside(services, UUID(self.scope), error.mpack_id)
                raise tasks.Quarantine("MPACK_CORRUPT", str(error)) from error

        @self.app.task(
            PREBUILD,
            bind=True,
            transactional=True,
            tier=1,
            gate=tasks.After(INDEX),
            dedup=tasks.Dedup(),
            retry=retry,
        )
        def build(self: tasks.Context, *, tip_commit_ids: list[str]) -> dict[str, str]:
            """Build the clone cache of all live tips. `tip_commit_ids` is for observation: live ones are read."""
            tips = live_tips(self.session, UUID(self.scope))
            # Looked at between reading the tips and the index: a pack whose push is in `tips` has its index job
            # either live here, or ended with its rows in the index.
            explained = live_index_jobs(self.session, UUID(self.scope))
            try:
                came_to = prebuild(services, self.session, UUID(self.scope), tips)
            except FetchNotIndexed:
                if explained:
                    raise tasks.Postpone(0) from None
                raise
            except CorruptMpack as error:
                self.session.rollback()
                if set_aside_if_damaged(services, UUID(self.scope), error.mpack_id):
                    raise tasks.Quarantine("MPACK_CORRUPT", str(error)) from error
                raise
            if came_to == OVERTAKEN:
                # No success, or the push that waits for this job would count as prebuilt: the job waits again, or
                # gives way to the one that the later push has queued.
                raise tasks.Postpone(0)
            return {"cache": came_to}

        self.index = index
        self.prebuild = build
        self.chores = Chores(self.app, services, index=INDEX)

    def enqueue_push(
        self,
        session: Session,
        repository_id: UUID,
        mpack_ids: Sequence[str],
        *,
        branch: str,
        head: str,
        tips: Sequence[str],
    ) -> list[UUID]:
        """Queue what follows from a push, in its transaction: index jobs, one prebuild behind them, chores."""
        jobs = [
            self.index.apply_async(
                kwargs={"mpack_key": mpack_key(mpack_id), "head": head, "branch": branch},
                session=session,
                scope=str(repository_id),
            ).id
            for mpack_id in mpack_ids
        ]
        jobs.append(self.enqueue_prebuild(session, repository_id, tips))
        return [*jobs, *self.chores.enqueue_push(session, repository_id, branch=branch, head=head)]

    def enqueue_prebuild(self, session: Session, repository_id: UUID, tips: Sequence[str]) -> UUID:
        """Queue a build of the clone cache; joins one that waits already."""
        return self.prebuild.apply_async(
            kwargs={"tip_commit_ids": list(tips)[:TIPS_SHOWN]}, session=session, scope=str(repository_id)
        ).id


def live_index_jobs(session: Session, repository_id: UUID) -> bool:
    """Whether an index job of the repository is pending or running."""
    return any(
        list_jobs(session, task=INDEX, scope=str(repository_id), status=status, limit=1)
        for status in ("pending", "running")
    )
