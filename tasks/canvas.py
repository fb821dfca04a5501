"""Jobs that wait for jobs, in Celery's words: `chain`, `group`, `chord`.

All jobs are enqueued at once, in one transaction. Each names its parents, and the claim itself looks whether they have
succeeded: nothing has to be pushed on when one ends. When a parent ends otherwise the child is cancelled, unless its
signature says `.set(on_parent_failure="run")` or `"stay"`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tasks import queue
from tasks.group_result import GroupResult
from tasks.result import AsyncResult
from tasks.signature import Before, Signature, Step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tasks.app import App
    from tasks.db import Conn
    from tasks.signature import Result


def _steps(what: str, given: Sequence[Any]) -> tuple[Step, ...]:
    """The steps of `what(a, b)` or `what([a, b])`."""
    if len(given) == 1 and isinstance(given[0], Iterable):
        given = tuple(given[0])
    for step in given:
        if not isinstance(step, Step):
            raise TypeError(f"{what} is made of signatures, e.g. task.s(…), not of {step!r}")
    return tuple(given)


class chain(Step):  # noqa: N801  # Celery's name
    """One after the other: `chain(a.s(1), b.s(2))` or `a.s(1) | b.s(2)`; each is passed the result of the one before.

    A step after a group is passed the list of its results. The result is that of the last step; its `parent` leads
    back.
    """

    def __init__(self, *steps: Any) -> None:
        """Raises TypeError for what is no step, ValueError for none."""
        flat: list[Step] = []
        for step in _steps("chain", steps):
            flat.extend(step.steps if isinstance(step, chain) else [step])
        if not flat:
            raise ValueError("chain: name at least one step")
        self.steps: tuple[Step, ...] = tuple(flat)

    @property
    def app(self) -> App | None:
        """The app of its first task."""
        return next((step.app for step in self.steps if step.app is not None), None)

    def __repr__(self) -> str:
        return " | ".join(map(repr, self.steps))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Enqueue it; the arguments go to the first step."""
        return self.apply_async(args, kwargs)

    def with_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> chain:
        """The same, with further arguments to the first step."""
        return chain(self.steps[0].with_arguments(args, kwargs), *self.steps[1:])

    def submit(self, before: Before, session: Conn | None) -> Result:
        """Enqueue all steps."""
        for step in self.steps:
            before = Before(step.submit(before, session))
        assert before.result is not None
        return before.result


class group(Step):  # noqa: N801  # Celery's name
    """Side by side: `group(a.s(1), a.s(2))`, or of any iterable of signatures. Its result is a GroupResult."""

    def __init__(self, *steps: Any) -> None:
        """Raises TypeError for what is no step."""
        self.steps = _steps("group", steps)

    @property
    def app(self) -> App | None:
        """The app of its first task."""
        return next((step.app for step in self.steps if step.app is not None), None)

    def __repr__(self) -> str:
        return f"group({', '.join(map(repr, self.steps))})"

    def __call__(self, *args: Any, **kwargs: Any) -> GroupResult:
        """Enqueue it; the arguments go to every member."""
        made = self.apply_async(args, kwargs)
        assert isinstance(made, GroupResult)
        return made

    def with_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> group:
        """The same, with further arguments to every member."""
        return group([step.with_arguments(args, kwargs) for step in self.steps])

    def submit(self, before: Before, session: Conn | None) -> GroupResult:
        """Enqueue all members; plain signatures of one app in one statement."""
        plain = [step for step in self.steps if isinstance(step, Signature)]
        apps = {step.task.app for step in plain}
        if len(plain) == len(self.steps) and len(apps) == 1 and not (app := apps.pop()).eager:
            conn = session if session is not None else app.current_session()
            made = queue.enqueue_jobs(conn, [step.new_job(before) for step in plain])
            results = [
                AsyncResult(job.job_id, app=app, task=step.task.name, outcome=job.outcome, parent=before.result)
                for step, job in zip(plain, made, strict=True)
            ]
            return GroupResult(results, parent=before.result)
        ends = [end for step in self.steps for end in Before(step.submit(before, session)).parents]
        return GroupResult(ends, parent=before.result)


class chord(Step):  # noqa: N801  # Celery's name
    """A group and what runs when all of it has succeeded, with the list of results: `chord(header, body)`.

    `chord(header)(body)` enqueues it at once. The result is that of the body; its `parent` is the header's.
    """

    def __init__(self, header: Any, body: Step | None = None) -> None:
        """Raises TypeError for what is no step."""
        self.header = header if isinstance(header, group) else group(header)
        self.body = None if body is None else _steps("chord", [body])[0]

    @property
    def app(self) -> App | None:
        """The app of its first task."""
        return self.header.app or (None if self.body is None else self.body.app)

    def __repr__(self) -> str:
        return f"chord({self.header!r}, {self.body!r})"

    def __call__(self, body: Step | None = None) -> Any:
        """Enqueue it, with `body` unless it has one."""
        return (self if body is None else chord(self.header, body)).apply_async()

    def with_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> chord:
        """The same, with further arguments to every member of the header."""
        return chord(self.header.with_arguments(args, kwargs), self.body)

    def submit(self, before: Before, session: Conn | None) -> Result:
        """Enqueue header and body."""
        if self.body is None:
            raise ValueError("chord: it has no body: chord(header, body), or chord(header)(body)")
        return self.body.submit(Before(self.header.submit(before, session)), session)
