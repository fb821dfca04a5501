"""A task with arguments, not yet enqueued: what chains, groups and chords are made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from tasks.db import together
from tasks.errors import UnknownOption
from tasks.group_result import GroupResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tasks.app import App
    from tasks.canvas import chain
    from tasks.db import Conn
    from tasks.job import NewJob
    from tasks.result import AsyncResult
    from tasks.task import Task

    Result = AsyncResult | GroupResult


@dataclass(frozen=True, slots=True)
class Before:
    """The step that goes before: None at the start."""

    result: Result | None = None

    @property
    def parents(self) -> list[AsyncResult]:
        """The jobs that have to succeed first."""
        if self.result is None:
            return []
        return list(self.result) if isinstance(self.result, GroupResult) else [self.result]

    @property
    def passing(self) -> str:
        """How their results are passed: `first`, the result itself; `list`, all of them in one list."""
        if self.result is None:
            return "none"
        return "list" if isinstance(self.result, GroupResult) else "first"


class Step(ABC):
    """What can be enqueued by itself or after something else."""

    @abstractmethod
    def submit(self, before: Before, session: Conn | None) -> Result:
        """Enqueue this to run after `before`."""

    @property
    @abstractmethod
    def app(self) -> App | None:
        """The app of the first task; None: there is no task in it."""

    @abstractmethod
    def with_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Step:
        """This, with further arguments in front and further keywords."""

    def __or__(self, other: Step) -> chain:
        """`a | b`: b after a, with a's result."""
        from tasks.canvas import chain

        return chain(self, other)

    def apply_async(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        session: Conn | None = None,
        **options: Any,
    ) -> Any:
        """Enqueue all of it in the transaction of `session`, or of the app's current one; never commit.

        `args` and `kwargs` go to what runs first. Raises UnknownOption for any option: they are set on the tasks.
        """
        for name in options:
            raise UnknownOption(name, f"say of which task: task.s(…).set({name}=…)")
        start = self.with_arguments(args, kwargs or {}) if args or kwargs else self
        app = start.app
        if app is None or app.eager:
            return start.submit(Before(), session)
        conn = session if session is not None else app.current_session()
        with together(conn):
            return start.submit(Before(), conn)

    def delay(self, *args: Any, **kwargs: Any) -> Any:
        """Enqueue all of it in the app's current transaction; see `apply_async`."""
        return self.apply_async(args, kwargs)


class Signature(Step):
    """`task.s(…)`: arguments that go behind the results passed on; `task.si(…)`, immutable: no result is passed."""

    def __init__(
        self,
        task: Task[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        immutable: bool = False,
        **options: Any,
    ) -> None:
        self.task = task
        self.args = tuple(args)
        self.kwargs = dict(kwargs or {})
        self.immutable = immutable
        self.options: dict[str, Any] = {}
        self.set(**options)

    def __repr__(self) -> str:
        arguments = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
        return f"{self.task.name}({', '.join(arguments)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Signature) and vars(other) == vars(self)

    __hash__ = None  # type: ignore[assignment]

    def set(self, **options: Any) -> Self:
        """Set options of `apply_async`, here, as Celery does; returns this signature. Raises UnknownOption."""
        self.task.check_options(options)
        self.options.update(options)
        return self

    def clone(self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any) -> Signature:
        """A copy with further arguments, which go in front, and further options."""
        if self.immutable and (args or kwargs):
            raise ValueError(f"{self!r} is immutable: it takes no further arguments")
        copy = Signature(self.task, (*args, *self.args), {**self.kwargs, **(kwargs or {})}, immutable=self.immutable)
        return copy.set(**{**self.options, **options})

    @property
    def app(self) -> App:
        """The app of its task."""
        return self.task.app

    def with_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Signature:
        """This, with further arguments in front and further keywords."""
        return self.clone(args, kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function here and now. No job is made."""
        return self.task(*args, *self.args, **{**self.kwargs, **kwargs})

    def apply_async(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        session: Conn | None = None,
        **options: Any,
    ) -> AsyncResult:
        """Enqueue the job; `args` go in front of its own, options before its own. See `Task.apply_async`."""
        return self.clone(args, kwargs, **options).submit(Before(), session)

    def submit(self, before: Before, session: Conn | None) -> AsyncResult:
        """Enqueue the job to run after `before`."""
        args, options = self._prepared(before)
        result = self.task.apply_async(args, self.kwargs, session=session, **options)
        result.parent = before.result
        return result

    def new_job(self, before: Before) -> NewJob:
        """Make the request of the job that `submit` would enqueue."""
        args, options = self._prepared(before)
        return self.task.new_job(args, self.kwargs, **options)

    def _prepared(self, before: Before) -> tuple[Sequence[Any], dict[str, Any]]:
        """Arguments and options for running after `before`."""
        parents, passing = before.parents, "none" if self.immutable else before.passing
        if before.result is None:
            return self.args, self.options
        if "parents" in self.options:
            raise ValueError(f"{self!r}: its place in the chain says what its parents are")
        if not parents:
            return (self.args if passing == "none" else ([], *self.args)), self.options
        return self.args, {**self.options, "parents": parents, "pass_results": passing}
