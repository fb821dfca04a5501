"""The hub's tasks that nobody waits for: the store kept clean, heads looked at.

They have a queue of their own: workers run them when nothing else waits, and one that serves this queue alone runs them
also while others are never idle.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session

import tasks
from hub.archive import set_aside_if_damaged
from hub.attributes import learn_domain
from hub.code_intel import code_intel
from hub.errors import CorruptMpack, FetchNotIndexed
from hub.gc import collect
from hub.last_commits import file_last_commits
from hub.prebuild import live_tips
from hub.repack import is_due, repack
from hub.services import Services
from tasks.queue import list_jobs

GC = "gc"
REPACK = "mpack.repack"
LAST_COMMITS = "push.file_last_commits"
INTEL = "intel.code"
RETRY = tasks.Exponential(base=30.0, cap=3600.0)
QUEUE = "chores"
LAST = -1
"""The priority of what nobody waits for."""


class Chores:
    """The chores, registered with `app`."""

    def __init__(self, app: tasks.App, services: Services, *, index: str) -> None:
        """`index`: the task that must be through with a repository's packs before they are folded."""
        self._keep_clean(app, services, index)
        self._look_at_heads(app, services, index)

    def _keep_clean(self, app: tasks.App, services: Services, index: str) -> None:
        @app.task(GC, bind=True, dedup=tasks.Dedup(), queue=QUEUE, priority=LAST, retry=RETRY)
        def gc(self: tasks.Context) -> dict[str, Any]:
            """Delete what nothing in the repository names any more."""
            return collect(services, UUID(self.scope)).counts()

        @app.periodic("23 3 * * *", tz="UTC", missed="one")
        @app.task("gc.all", queue=QUEUE, priority=LAST, retry=RETRY)
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
            queue=QUEUE,
            priority=LAST,
            retry=RETRY,
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

    def _look_at_heads(self, app: tasks.App, services: Services, index: str) -> None:
        @app.task(
            LAST_COMMITS,
            bind=True,
            transactional=True,
            tier=2,
            dedup=tasks.Dedup(),
            queue=QUEUE,
            priority=LAST,
            retry=RETRY,
        )
        def last_commits(self: tasks.Context, *, head: str, branch: str) -> dict[str, int]:
            """Find the last commit of each path. `head` and `branch` are for observation: live heads are read."""
            tips = live_tips(self.session, UUID(self.scope))
            return file_last_commits(self.session, UUID(self.scope), tips, self.checkpoint)

        @app.task(
            INTEL,
            bind=True,
            transactional=True,
            tier=2,
            gate=tasks.After(index),
            dedup=tasks.Dedup(),
            queue=QUEUE,
            priority=LAST,
            retry=RETRY,
        )
        def intel(self: tasks.Context, *, head: str, branch: str) -> dict[str, int]:
            """Measure the languages of each head, and learn the domain. `head` and `branch` are for observation."""
            tips = live_tips(self.session, UUID(self.scope))
            under_way = [
                job
                for status in ("pending", "running")
                for job in list_jobs(self.session, task=index, scope=self.scope, status=status, limit=1)
            ]
            try:
                measured = code_intel(self.session, UUID(self.scope), tips)
                learn_domain(services, self.session, UUID(self.scope), tips)
                return measured
            except FetchNotIndexed:
                if under_way:
                    raise tasks.Postpone(0) from None
                raise

        self.last_commits = last_commits
        self.intel = intel

    def enqueue_push(self, session: Session, repository_id: UUID, *, branch: str, head: str) -> list[UUID]:
        """Queue the chores that follow from a push, in its transaction; each joins one that waits already."""
        scope = str(repository_id)
        pushed = {"head": head, "branch": branch}
        queued = [
            self.gc.apply_async(session=session, scope=scope),
            self.last_commits.apply_async(kwargs=pushed, session=session, scope=scope),
            self.intel.apply_async(kwargs=pushed, session=session, scope=scope),
        ]
        if is_due(session, repository_id):
            queued.append(self.repack.apply_async(session=session, scope=scope))
        return [item.id for item in queued]
