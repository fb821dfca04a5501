"""The register of tasks, and what they need from the application around them."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Concatenate, Literal, TypeVar, Unpack, cast, overload

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tasks.context import Context, task_session
from tasks.declared import TASK_OPTIONS, Configuration, Options, TaskOptions
from tasks.errors import NotConfigured
from tasks.operate import KEEP_SECONDS, check_keep
from tasks.options import attempts_of, check_name, refuse
from tasks.periodic import Missed, Periodic, maker
from tasks.result import AsyncResult
from tasks.retry import Exponential
from tasks.task import P, Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from datetime import timedelta
    from uuid import UUID

    from sqlalchemy.orm import Session

    from tasks.db import Conn

R = TypeVar("R")

DEFAULT_RETRY = Exponential(base=1.0, cap=300.0)
MAX_ATTEMPTS = 5
PUBLIC = ("eager", "eager_propagates", "keep")
"""What is configured under the name of its attribute."""


class App:
    """A set of tasks, by name.

    Made where the tasks are written, configured where the application is put together: importing tasks needs
    neither a database nor a setting.
    """

    def __init__(self, name: str, **configuration: Unpack[Configuration]) -> None:
        """Raises ValueError for a bad name; `configuration` is what `configure` takes."""
        self.name = check_name(name, "app name")
        self._tasks: dict[str, Task[..., Any]] = {}
        self._schedules: dict[str, Periodic] = {}
        self.keep: Mapping[str, float] = KEEP_SECONDS
        self.eager = False
        self.eager_propagates = False
        self._database_url: str | None = None
        self._session: Callable[[], Session] | None = None
        self._current: Callable[[], Conn] | None = None
        self._around: Callable[[], AbstractContextManager[object]] = nullcontext
        self.configure(**configuration)

    def __repr__(self) -> str:
        return f"<tasks app {self.name}, {len(self._tasks)} tasks>"

    def configure(self, **configuration: Unpack[Configuration]) -> None:
        """Set what is given; what is None stays as it was.

        `database_url` (libpq URL or conninfo) is where workers and the command line connect. `session` makes
        a new SQLAlchemy session for each transactional task; the worker commits and closes it. `current`
        returns the connection or session whose transaction `delay` enqueues in, e.g. `lambda: db.session`. `around`
        makes the context manager in which a worker runs each attempt, e.g. Flask's `app.app_context`.
        `keep` maps statuses to the seconds that ended jobs are kept, {"succeeded": 86400}; workers delete older
        ones, and what it does not name is kept as by default, 7 days for succeeded jobs, 30 for others.
        `eager=True`, for tests, makes `delay` run the task at once, see docs/how-to/test-your-tasks.md;
        `eager_propagates=True` lets its errors through.

        Raises ValueError for a malformed URL, without showing it: it may hold a password, and for a session in the
        place of a function that makes or returns one; PayloadError for `keep`.
        """
        unknown = {name: value for name, value in configuration.items() if name not in Configuration.__annotations__}
        refuse(f"app {self.name}", unknown, Configuration.__annotations__)
        given = {name: value for name, value in configuration.items() if value is not None}
        if "database_url" in given:
            try:
                conninfo_to_dict(str(given["database_url"]))
            except psycopg.ProgrammingError:
                raise ValueError("database_url must be like postgresql://user@host:5432/name") from None
        for name in ("session", "current", "around"):
            if name in given and not callable(given[name]):
                raise ValueError(f"{name} must be a function that returns one, e.g. lambda: db.session")
        if "keep" in given:
            given["keep"] = check_keep({**KEEP_SECONDS, **cast("Mapping[str, float]", given["keep"])})
        for name, value in given.items():
            setattr(self, name if name in PUBLIC else f"_{name}", value)

    @property
    def database_url(self) -> str:
        """Where the job tables are. Raises NotConfigured."""
        if self._database_url is None:
            raise NotConfigured(f"app {self.name} has no database: call configure(database_url=…)")
        return self._database_url

    @property
    def tasks(self) -> Mapping[str, Task[..., Any]]:
        """The registered tasks by name."""
        return self._tasks

    @property
    def schedules(self) -> Mapping[str, Periodic]:
        """The schedules of periodic tasks by name."""
        return self._schedules

    def __getitem__(self, name: str) -> Task[..., Any]:
        return self._tasks[name]

    def __contains__(self, name: object) -> bool:
        return name in self._tasks

    def __iter__(self) -> Iterator[str]:
        return iter(self._tasks)

    def __len__(self) -> int:
        return len(self._tasks)

    def __bool__(self) -> bool:
        return True

    def queues(self) -> tuple[str, ...]:
        """Queues that the registered tasks name, `default` among them."""
        return tuple(sorted({"default", *(task.options.queue for task in self._tasks.values())}))

    def current_session(self) -> Conn:
        """Session of the transactional task that runs here, else the application's current one.

        Raises NotConfigured: an enqueue without a transaction could be lost or come too early.
        """
        session = task_session()
        if session is not None:
            return session
        if self._current is None:
            raise NotConfigured(f"app {self.name} has no current transaction: give session=…, or configure(current=…)")
        return self._current()

    def new_session(self) -> Session:
        """A new session for a transactional task. Raises NotConfigured."""
        if self._session is None:
            raise NotConfigured(f"app {self.name} has transactional tasks: call configure(session=…)")
        return self._session()

    def around(self) -> AbstractContextManager[object]:
        """Make what an attempt runs in: see `configure`."""
        return self._around()

    def AsyncResult(self, id: UUID | str, *, session: Conn | None = None) -> AsyncResult:  # noqa: N802, A002  # Celery's
        """The handle of the job `id`; reads on a connection of its own, or in `session`."""
        return AsyncResult(id, app=self, session=session)

    @overload
    def task(self, name: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self, name: str | None = None, *, bind: Literal[True], **options: Unpack[Options]
    ) -> Callable[[Callable[Concatenate[Context, P], R]], Task[P, R]]: ...

    @overload
    def task(
        self, name: str | None = None, *, bind: Literal[False] = False, **options: Unpack[Options]
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...

    def task(self, name: Any = None, **options: Any) -> Any:
        """Register a function: `@app.task("mpack.index", bind=True, …)`, or bare `@app.task`.

        Without a name it is `module.function`. `queue`, `priority` (higher first) and `tier` (seconds added
        to created_at, for ordering only) place its jobs; `gate=After(…)`, `Limit(…)` or a tuple, `dedup=Dedup(…)` in
        docs/reference/queue.md; `lease` is in seconds; `max_attempts` counts all runs (`max_retries=n` is
        n+1); `retry` is the back-off; `soft_time_limit` (seconds) raises SoftTimeLimitExceeded at the task's
        next checkpoint, `time_limit` fails the attempt from outside; `transactional=True` gives the task a
        session that commits with its success.

        Raises UnknownOption for what cannot be honoured, ValueError for a bad name, value or a name taken
        twice.
        """
        if callable(name):
            return self._register(None, name, {})
        return lambda function: self._register(name, function, options)

    def periodic(
        self,
        cron: str | None = None,
        *,
        every: float | timedelta | None = None,
        tz: str | None = None,
        missed: Missed = "one",
        jitter: float = 0.0,
        name: str | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Callable[[Task[P, R]], Task[P, R]]:
        """Run a task periodically: `@app.periodic("30 2 * * *", tz="Europe/Berlin")` above `@app.task(…)`.

        `cron` has five fields on the wall clock of `tz` (UTC); `every` counts elapsed seconds. One job per
        schedule and nominal time, whatever the number of workers. `missed` says what becomes of nominal times
        that passed while no worker ran: `one` job for all of them, `all`, or `none`. With `jitter` (seconds) each job
        is due by up to so much later, by an amount that its name and nominal time decide: schedules of one instant
        do not all start at once. `name`, if the task has
        several schedules, is the task's name otherwise; `args` and `kwargs` go to the task.

        Raises ValueError for what makes no schedule, TypeError for arguments that do not fit.
        """
        make = maker(cron=cron, every=every, tz=tz, missed=missed, args=args, kwargs=kwargs, jitter=jitter)

        def schedule(task: Task[P, R]) -> Task[P, R]:
            if not isinstance(task, Task):
                raise TypeError("periodic: write @app.periodic(…) above @app.task(…)")
            made = make(task, check_name(name or task.name, "schedule"))
            if made.name in self._schedules:
                raise ValueError(f"there is a schedule {made.name} already: give another name=")
            self._schedules[made.name] = made
            return task

        return schedule

    def _register(self, name: str | None, function: Callable[..., R], options: dict[str, Any]) -> Task[..., R]:
        name = name if name is not None else f"{function.__module__}.{function.__name__}"
        check_name(name)
        unknown = {option: value for option, value in options.items() if option not in TASK_OPTIONS}
        refuse(f"task {name}", unknown, TASK_OPTIONS)
        taken = self._tasks.get(name)
        if taken is not None:
            raise ValueError(f"task {name} is registered twice: by {_place(taken.function)} and {_place(function)}")
        given = {option: value for option, value in options.items() if option in TASK_OPTIONS}
        attempts = attempts_of(given.pop("max_attempts", None), given.pop("max_retries", None), MAX_ATTEMPTS)
        made = TaskOptions(**{"retry": DEFAULT_RETRY, **given, "max_attempts": attempts})
        self._tasks[name] = Task(self, name, function, made)
        return self._tasks[name]


def _place(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"
