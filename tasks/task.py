"""A task: a function with a name. Calling it runs it here; `delay` and `apply_async` make a job of it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, cast

from tasks import queue as jobs
from tasks.call import APPLY_OPTIONS, Call, CallOptions, new_job, new_jobs
from tasks.context import Context, Request
from tasks.declared import TaskOptions
from tasks.eager import run_now
from tasks.enqueue import enqueue_as
from tasks.gates import stamp
from tasks.options import check_name, refuse
from tasks.result import AsyncResult
from tasks.signature import Signature

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from uuid import UUID

    from sqlalchemy.orm import Session

    from tasks.app import App
    from tasks.db import Conn
    from tasks.job import Done, NewJob

P = ParamSpec("P")
R = TypeVar("R")


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
        self.parameters = signature
        self.stamped = stamp(options.gate)
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

        `countdown` is in seconds from now, `eta` an aware datetime: the job is not claimed before. `expires`,
        seconds or an aware datetime: from then on the job does not begin, not even again, and is cancelled. `scope`
        is the thing that the job is about: gates and dedup look only at jobs of the same scope. `dedup_key` and
        `mode` override the task's own `dedup=`. `parents` are jobs that have to succeed first; `on_parent_failure`
        says what becomes of this one if they do not (`cancel`, `run`, `stay`), `pass_results` whether their results
        go in front of `args` (`none`, `first`, `list`).

        Raises TypeError when the arguments do not fit the function, ValueError naming the field when they are
        no JSON (PayloadError) or a value is out of range, UnknownOption, DuplicateJob, and NotConfigured when
        there is no transaction to enqueue in.
        """
        new = self.new_job(args, kwargs, **options)
        if self.app.eager:
            given = options.get("parents") or ()
            parents = [p if isinstance(p, AsyncResult) else self.app.AsyncResult(p) for p in given]
            return run_now(self, new, session, parents)
        return self._result(*jobs.enqueue_job(session if session is not None else self.app.current_session(), new))

    def apply_many(
        self,
        calls: Iterable[Sequence[Any] | Mapping[str, Any] | Signature],
        *,
        session: Conn | None = None,
        **options: Unpack[CallOptions],
    ) -> list[AsyncResult]:
        """Enqueue many jobs, a thousand in a statement; all of them or none. Returns their results in order.

        Each call is a list or tuple of positional arguments, a mapping of keyword arguments, or a signature of
        this task, whose own options go before `options`. Requests with one dedup key join each other, too.
        Raises as `apply_async` does; then nothing is enqueued.
        """
        self.check_options(options)
        # All of them now: what makes the calls may need the connection.
        made = (self._arguments_of(call, options) for call in [*calls])
        if self.app.eager:
            return [self.apply_async(args, kwargs, session=session, **given) for args, kwargs, given in made]
        conn = session if session is not None else self.app.current_session()
        return enqueue_as(self._result, conn, new_jobs(self, made))

    def s(self, *args: Any, **kwargs: Any) -> Signature:
        """A signature: these arguments, behind what a chain or chord passes on."""
        return Signature(self, args, kwargs)

    def si(self, *args: Any, **kwargs: Any) -> Signature:
        """An immutable signature: these arguments, whatever goes before."""
        return Signature(self, args, kwargs, immutable=True)

    def signature(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        immutable: bool = False,
        **options: Any,
    ) -> Signature:
        """A signature with options of `apply_async`, e.g. `add.signature((2, 2), countdown=10)`."""
        return Signature(self, args, kwargs, immutable=immutable, **options)

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raise UnknownOption for what `apply_async` does not take."""
        unknown = {name: value for name, value in options.items() if name not in APPLY_OPTIONS}
        refuse(f"{self.name}.apply_async", unknown, APPLY_OPTIONS)

    def _result(self, job_id: UUID, outcome: Done) -> AsyncResult:
        return AsyncResult(job_id, app=self.app, task=self.name, outcome=outcome)

    def _arguments_of(self, call: Any, options: Mapping[str, Any]) -> Call:
        """Arguments, keyword arguments and options of one call of many."""
        if isinstance(call, list | tuple):
            return call, {}, options
        if isinstance(call, Signature):
            if call.task is not self:
                raise ValueError(f"{self.name}.apply_many: {call!r} is a call of another task")
            return call.args, call.kwargs, {**options, **call.options} if call.options else options
        if isinstance(call, Mapping):
            return (), call, options
        raise TypeError(f"{self.name}.apply_many: {call!r} is neither a list, a tuple, a mapping nor a signature")

    def new_job(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]
    ) -> NewJob:
        """Make the request of a job, without a database. Raises as `apply_async` does."""
        self.check_options(options)
        return new_job(self, args, kwargs or {}, options)
