"""A task: a function with a name. Calling it runs it here; `delay` and `apply_async` make a job of it."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast
from uuid import UUID

from tasks import queue as jobs
from tasks.context import Context, Request
from tasks.dedup import Dedup
from tasks.errors import PayloadError
from tasks.gates import After
from tasks.job import NewJob
from tasks.options import (
    ATTEMPTS_MAX,
    LEASE_SECONDS_MAX,
    LEASE_SECONDS_MIN,
    PRIORITY_MAX,
    PRIORITY_MIN,
    TIER_MAX,
    check_name,
    check_number,
    refuse,
)
from tasks.payload import check_instant

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy.orm import Session

    from tasks.app import App
    from tasks.db import Conn
    from tasks.retry import Policy

P = ParamSpec("P")
R = TypeVar("R")

APPLY_OPTIONS = (
    *("countdown", "dedup_key", "eta", "lease", "max_attempts"),
    *("mode", "priority", "queue", "scope", "session", "task_id"),
)


@dataclass(frozen=True, slots=True)
class AsyncResult:
    """What an enqueue gives back. `outcome`: "inserted", "joined" or "duplicate"."""

    id: UUID
    task: str
    outcome: str

    def __str__(self) -> str:
        return str(self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """How the jobs of a task are queued and tried. `lease` and `tier` are in seconds."""

    retry: Policy
    bind: bool = False
    queue: str = "default"
    priority: int = 0
    tier: int = 0
    gate: After | None = None
    dedup: Dedup | None = None
    lease: float = 60.0
    max_attempts: int = 5
    transactional: bool = False
    autoretry_for: tuple[type[BaseException], ...] = (Exception,)
    dont_retry_for: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        """Refuse what could not work, naming the option. Raises ValueError."""
        check_name(self.queue, "queue")
        check_number("priority", self.priority, PRIORITY_MIN, PRIORITY_MAX, whole=True)
        check_number("tier", self.tier, 0, TIER_MAX, whole=True)
        check_number("lease", self.lease, LEASE_SECONDS_MIN, LEASE_SECONDS_MAX)
        check_number("max_attempts", self.max_attempts, 1, ATTEMPTS_MAX, whole=True)
        if not callable(getattr(self.retry, "delays", None)):
            raise TypeError(f"retry must be a policy such as Exponential(…) or Fixed(…), not {self.retry!r}")
        self.retry.delays(self.max_attempts)
        for option, kind in (("gate", After), ("dedup", Dedup)):
            value = getattr(self, option)
            if value is not None and not isinstance(value, kind):
                raise ValueError(f"{option} must be {kind.__name__}(…), not {value!r}")
        for option in ("autoretry_for", "dont_retry_for"):
            kinds = getattr(self, option)
            if not isinstance(kinds, tuple) or not all(_is_exception(kind) for kind in kinds):
                raise ValueError(f"{option} must be a tuple of exception classes, not {kinds!r}")

    def retries(self, error: BaseException) -> bool:
        """Whether an attempt that ended with `error` may run again, budget permitting.

        SystemExit and its like are no part of a task's contract: they count as a crash, and a crash runs
        again.
        """
        if isinstance(error, self.dont_retry_for):
            return False
        return isinstance(error, self.autoretry_for) or not isinstance(error, Exception)


def _is_exception(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseException)


class Task(Generic[P, R]):
    """A registered function. Made by `@app.task(…)`, never by hand."""

    def __init__(self, app: App, name: str, function: Callable[..., R], options: TaskOptions) -> None:
        self.app = app
        self.name = check_name(name)
        self.function = function
        self.options = options
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise ValueError(f"{name}: a task is a plain function, neither async nor a generator")
        signature = inspect.signature(function)
        if options.bind:
            parameters = list(signature.parameters.values())
            first, rest = (parameters[0], parameters[1:]) if parameters else (None, [])
            if first is None or first.kind not in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD):
                raise ValueError(f"{name}: bind=True needs a first parameter for the task's context, e.g. self")
            signature = signature.replace(parameters=rest)
        if options.dedup is not None and (unknown := set(options.dedup.by) - set(signature.parameters)):
            raise ValueError(f"{name}: dedup= names {min(unknown)!r}, which is no parameter of the function")
        self.signature = signature
        self.__name__ = getattr(function, "__name__", name)
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def __repr__(self) -> str:
        return f"<task {self.name} of {self.app.name}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function here and now, in the caller's transaction. No job is made."""
        request = Request(id=None, task=self.name, args=args, kwargs=kwargs, called_directly=True)
        session = self.app.current_session() if self.options.bind and self.options.transactional else None
        return self.run(Context(request, session=cast("Session | None", session)), args, kwargs)

    def run(self, context: Context, args: Sequence[Any], kwargs: Mapping[str, Any]) -> R:
        """Call the function with `context` when it is bound."""
        if self.options.bind:
            return self.function(context, *args, **kwargs)
        return self.function(*args, **kwargs)

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> AsyncResult:
        """Enqueue a job with these arguments in the app's current transaction. See `apply_async`."""
        return self.apply_async(args, kwargs)

    def apply_async(  # noqa: PLR0913  # Celery's options, and ours
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        session: Conn | None = None,
        scope: str = "",
        countdown: float | None = None,
        eta: datetime | None = None,
        queue: str | None = None,
        priority: int | None = None,
        task_id: UUID | str | None = None,
        dedup_key: str | None = None,
        mode: str | None = None,
        lease: float | None = None,
        max_attempts: int | None = None,
        **options: Any,
    ) -> AsyncResult:
        """Enqueue a job in the transaction of `session`, or of the app's current one; never commit.

        `countdown` is in seconds from now, `eta` an aware datetime: the job is not claimed before. `scope` is
        the thing that the job is about: gates and dedup look only at jobs of the same scope. `dedup_key` and
        `mode` override the task's own `dedup=`.

        Raises TypeError when the arguments do not fit the function, ValueError naming the field when they are
        no JSON (PayloadError) or a value is out of range, UnknownOption, DuplicateJob, and NotConfigured when
        there is no transaction to enqueue in.
        """
        refuse(f"{self.name}.apply_async", options, APPLY_OPTIONS)
        if lease is not None:
            check_number("lease", lease, LEASE_SECONDS_MIN, LEASE_SECONDS_MAX)
        if max_attempts is not None:
            check_number("max_attempts", max_attempts, 1, ATTEMPTS_MAX, whole=True)
        if countdown is not None and eta is not None:
            raise PayloadError("eta", "give countdown or eta, not both")
        given = {
            "scope": scope,
            "countdown": countdown,
            "available_at": check_instant("eta", eta),
            "queue": queue,
            "priority": priority,
            "job_id": _job_id(task_id),
            "dedup_key": dedup_key,
            "mode": mode,
            "lease_seconds": lease,
            "attempts_max": max_attempts,
        }
        new = self._new_job(tuple(args), dict(kwargs or {}), given)
        enqueued = jobs.enqueue_job(session if session is not None else self.app.current_session(), new)
        return AsyncResult(enqueued.job_id, self.name, enqueued.outcome)

    def _new_job(self, args: tuple[Any, ...], kwargs: dict[str, Any], given: dict[str, Any]) -> NewJob:
        """Make the request: what was given at the call goes before the task's own options."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.name}: {error}") from None
        own = self.options
        key, mode = given.pop("dedup_key"), given.pop("mode")
        if key is None and own.dedup is not None:
            bound.apply_defaults()
            key = own.dedup.key(given["scope"], bound.arguments)
        if key is None and mode is not None:
            raise PayloadError("mode", "means nothing without dedup_key= or the task's dedup=")
        defaults = {
            "queue": own.queue,
            "priority": own.priority,
            "lease_seconds": own.lease,
            "attempts_max": own.max_attempts,
        }
        return NewJob(
            task=self.name,
            payload={"args": list(args), "kwargs": kwargs},
            tier=own.tier,
            after_tasks=own.gate.tasks if own.gate is not None else (),
            dedup_key=key,
            dedup_mode=mode or (own.dedup.mode if own.dedup is not None else "join"),
            **{**defaults, **{name: value for name, value in given.items() if value is not None}},
        )


def _job_id(given: UUID | str | None) -> UUID | None:
    if given is None or isinstance(given, UUID):
        return given
    try:
        return UUID(given)
    except (ValueError, AttributeError, TypeError):
        raise PayloadError("task_id", f"must be a UUID, not {given!r}") from None
