"""What a task with `bind=True` is handed as `self`, and the session of the task that runs here."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Protocol
from uuid import UUID, uuid4

from tasks.errors import ClaimLost, NotConfigured, Retry
from tasks.options import refuse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy.orm import Session

_inside_task: ContextVar[bool] = ContextVar("tasks_inside_task", default=False)
_task_session: ContextVar[Session | None] = ContextVar("tasks_session", default=None)


def task_session() -> Session | None:
    """Session of the transactional task that runs in this thread of control, or None."""
    return _task_session.get()


def inside_task() -> bool:
    """Whether a task of this process runs here, under a worker."""
    return _inside_task.get()


@contextmanager
def running_in(session: Session | None) -> Iterator[None]:
    """Make `session` the one that enqueues of this thread of control belong to."""
    token, inside = _task_session.set(session), _inside_task.set(True)
    try:
        yield
    finally:
        _task_session.reset(token)
        _inside_task.reset(inside)


class Holding(Protocol):
    """The task's side of a claim that a worker holds."""

    @property
    def job_id(self) -> UUID:
        """The claimed job."""

    @property
    def token(self) -> UUID:
        """Names this attempt and no other."""

    @property
    def lost(self) -> bool:
        """True once the claim is known to be no longer this attempt's."""

    def extend(self) -> None:
        """Extend the lease now; raises ClaimLost."""

    def check_soft_limit(self) -> None:
        """Raise SoftTimeLimitExceeded, once, when the soft limit is over."""

    def save_progress(self, progress: Mapping[str, Any]) -> None:
        """Write the progress of the job; raises ClaimLost and JobTerminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is known of the job that runs, in Celery's words where they exist.

    `attempt` counts claims (1 for the first), `retries` counts the charged attempts before this one: an
    attempt that was released is given back, so `retries` may be smaller than `attempt - 1`. `nominal_at`
    is the time that a periodic task's job stands for, in UTC.
    """

    id: UUID | None
    task: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any]
    attempt: int = 1
    retries: int = 0
    max_attempts: int = 1
    scope: str = ""
    queue: str = ""
    worker: str | None = None
    called_directly: bool = False
    nominal_at: datetime | None = None


class Context:
    """The bound first argument of a task: its request, its session, and its line to the worker."""

    def __init__(self, request: Request, *, holding: Holding | None = None, session: Session | None = None) -> None:
        self.request = request
        self._holding = holding
        self._session = session

    @property
    def scope(self) -> str:
        """The thing that the job is about, as given at the enqueue."""
        return self.request.scope

    @property
    def session(self) -> Session:
        """The session that commits together with the job's success, or not at all.

        Only transactional tasks have one (NotConfigured otherwise). Raises ClaimLost once the claim is known
        to be lost: what is written after that could never be committed. The task does not commit it, the
        worker does.
        """
        if self._session is None:
            raise NotConfigured(f"{self.request.task} has no session: declare it with transactional=True")
        if self._holding is not None and self._holding.lost:
            raise ClaimLost(self._holding.job_id)
        return self._session

    def heartbeat(self) -> None:
        """Extend the lease now. Raises ClaimLost when another attempt may have begun.

        The worker does it by itself at a third of the lease; call this before a step that must not be done
        twice.
        """
        if self._holding is not None:
            self._holding.check_soft_limit()
            self._holding.extend()

    def checkpoint(self) -> None:
        """Raise ClaimLost when the claim is known to be lost, SoftTimeLimitExceeded over the soft limit.

        Asks no database: cheap enough for an inner loop. `heartbeat`, `progress` and `cancelled` are
        checkpoints of the soft limit too.
        """
        if self.cancelled() and self._holding is not None:
            raise ClaimLost(self._holding.job_id)

    def fence_key(self, name: str) -> str:
        """A key for an object store that only this attempt writes: `name`, a dot and the claim token.

        A store has no fence: the PUT of an attempt that has lost its claim may arrive last. So each attempt
        writes a key of its own, and a transactional task makes the key the current one in its session: that
        commits together with the success, or not at all. What is overwritten or orphaned is deleted by
        whoever clears the store.
        """
        return f"{name}.{self._holding.token if self._holding is not None else uuid4()}"

    def progress(self, done: int, total: int | None = None, text: str = "") -> None:
        """Show how far the job is, in a transaction of its own, at once visible.

        Raises ClaimLost, and JobTerminal when the job has ended meanwhile, e.g. was cancelled.
        """
        if self._holding is not None:
            self._holding.check_soft_limit()
            self._holding.save_progress({"done": done, "total": total, "text": text})

    def cancelled(self) -> bool:
        """True once the claim is gone: cancelled, over its time limit, swept, or given back by a stopping worker.

        The heartbeat learns it within a third of the lease. Whatever the task does after that, its result and
        the writes of its session are refused.
        """
        if self._holding is None:
            return False
        self._holding.check_soft_limit()
        return self._holding.lost

    def retry(self, *, exc: BaseException | None = None, countdown: float | None = None, **options: Any) -> NoReturn:
        """End this attempt as failed and run again after `countdown` seconds (None: the task's own back-off).

        Raises Retry, as Celery's does; when the budget is spent the job ends failed with the code of `exc`.
        """
        refuse("retry", options, ("countdown", "exc"))
        raise Retry(countdown=countdown) from exc
