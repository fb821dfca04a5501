"""A task: a function with a name. Calling it runs it here; `delay` and `apply_async` make a job of it."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypedDict, TypeVar, Unpack, cast
from uuid import UUID

from tasks import queue as jobs
from tasks.context import Context, Request
from tasks.declared import TaskOptions
from tasks.errors import PayloadError
from tasks.job import NewJob
from tasks.options import (
    ATTEMPTS_MAX,
    LEASE_SECONDS_MAX,
    LEASE_SECONDS_MIN,
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

P = ParamSpec("P")
R = TypeVar("R")


class CallOptions(TypedDict, total=False):
    """What `apply_async` takes beside the arguments and `session`; see `Task.apply_async`. None: as if not given."""

    scope: str
    countdown: float | None
    eta: datetime | None
    queue: str | None
    priority: int | None
    task_id: UUID | str | None
    dedup_key: str | None
    mode: str | None
    lease: float | None
    max_attempts: int | None


APPLY_OPTIONS = ("session", *CallOptions.__annotations__)


@dataclass(frozen=True, slots=True)
class AsyncResult:
    """What an enqueue gives back. `outcome`: "inserted", "joined" or "duplicate"."""

    id: UUID
    task: str
    outcome: str

    def __str__(self) -> str:
        return str(self.id)


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

    def apply_async(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        session: Conn | None = None,
        **options: Unpack[CallOptions],
    ) -> AsyncResult:
        """Enqueue a job in the transaction of `session`, or of the app's current one; never commit.

        `countdown` is in seconds from now, `eta` an aware datetime: the job is not claimed before. `scope` is
        the thing that the job is about: gates and dedup look only at jobs of the same scope. `dedup_key` and
        `mode` override the task's own `dedup=`.

        Raises TypeError when the arguments do not fit the function, ValueError naming the field when they are
        no JSON (PayloadError) or a value is out of range, UnknownOption, DuplicateJob, and NotConfigured when
        there is no transaction to enqueue in.
        """
        new = self.new_job(args, kwargs, **options)
        enqueued = jobs.enqueue_job(session if session is not None else self.app.current_session(), new)
        return AsyncResult(enqueued.job_id, self.name, enqueued.outcome)

    def new_job(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]
    ) -> NewJob:
        """Make the request of a job, without a database: what is given here goes before the task's own options.

        Raises as `apply_async` does.
        """
        unknown = {name: value for name, value in options.items() if name not in APPLY_OPTIONS}
        refuse(f"{self.name}.apply_async", unknown, APPLY_OPTIONS)
        given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        _check(given)
        kwargs = dict(kwargs or {})
        key, mode = self._dedup(args, kwargs, given)
        own = self.options
        return NewJob(
            task=self.name,
            payload={"args": list(args), "kwargs": kwargs},
            queue=given.get("queue", own.queue),
            scope=given.get("scope", ""),
            priority=given.get("priority", own.priority),
            tier=own.tier,
            after_tasks=own.gate.tasks if own.gate is not None else (),
            available_at=given.get("eta"),
            countdown=given.get("countdown"),
            lease_seconds=given.get("lease", own.lease),
            attempts_max=given.get("max_attempts", own.max_attempts),
            dedup_key=key,
            dedup_mode=mode,
            job_id=_job_id(given.get("task_id")),
        )

    def _dedup(self, args: Sequence[Any], kwargs: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[Any, Any]:
        """Key and mode of a request; checks that the arguments fit the function."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.name}: {error}") from None
        key, own = given.get("dedup_key"), self.options.dedup
        if key is None and own is not None:
            bound.apply_defaults()
            key = own.key(given.get("scope", ""), bound.arguments)
        if key is None and "mode" in given:
            raise PayloadError("mode", "means nothing without dedup_key= or the task's dedup=")
        return key, given.get("mode", own.mode if own is not None else "join")


def _check(given: Mapping[str, Any]) -> None:
    if "lease" in given:
        check_number("lease", given["lease"], LEASE_SECONDS_MIN, LEASE_SECONDS_MAX)
    if "max_attempts" in given:
        check_number("max_attempts", given["max_attempts"], 1, ATTEMPTS_MAX, whole=True)
    if "countdown" in given and "eta" in given:
        raise PayloadError("eta", "give countdown or eta, not both")
    check_instant("eta", given.get("eta"))


def _job_id(given: UUID | str | None) -> UUID | None:
    if given is None or isinstance(given, UUID):
        return given
    try:
        return UUID(given)
    except (ValueError, AttributeError, TypeError):
        raise PayloadError("task_id", f"must be a UUID, not {given!r}") from None
