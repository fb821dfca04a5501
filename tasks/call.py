"""One call of `apply_async`: its options, checked and made into the request of a job. No database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypedDict
from uuid import UUID

from tasks.errors import PayloadError
from tasks.job import DEDUP_MODES, PASS_RESULTS, NewJob
from tasks.options import ATTEMPTS_MAX, LEASE_SECONDS_MAX, LEASE_SECONDS_MIN, NAME_RULE, check_number, is_name
from tasks.payload import check_instant, check_seconds, check_word
from tasks.result import AsyncResult, uuid_of

if TYPE_CHECKING:
    from tasks.task import Task


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
    expires: float | datetime | None
    parents: Iterable[AsyncResult | UUID | str] | None
    on_parent_failure: str | None
    pass_results: str | None


Call = tuple[Sequence[Any], Mapping[str, Any], Mapping[str, Any]]
"""Arguments, keyword arguments and options of one call."""
APPLY_OPTIONS = ("session", *CallOptions.__annotations__)


_PASSED: Mapping[str, tuple[None, ...]] = {"none": (), "first": (None,), "list": (None,)}
"""Stands for the results of parents where arguments are fitted to a function."""
_KEY = NewJob._fields.index("dedup_key")


def _end(expires: float | datetime | None) -> dict[str, Any]:
    if isinstance(expires, datetime):
        return {"expires_at": check_instant("expires", expires)}
    return {"expires": None if expires is None else check_seconds("expires", expires)}


def _check_arguments(args: object, kwargs: object) -> None:
    if not isinstance(args, (list, tuple)):
        raise PayloadError("args", f"must be a list or a tuple, e.g. (2, 2), not {type(args).__name__}")
    if not isinstance(kwargs, Mapping):
        raise PayloadError("kwargs", f"must be a mapping of names to values, not {type(kwargs).__name__}")


def _check(given: Mapping[str, Any]) -> None:
    if "queue" in given and not is_name(given["queue"]):
        raise PayloadError("queue", f"must be {NAME_RULE}")
    if "lease" in given:
        check_number("lease", given["lease"], LEASE_SECONDS_MIN, LEASE_SECONDS_MAX)
    if "max_attempts" in given:
        check_number("max_attempts", given["max_attempts"], 1, ATTEMPTS_MAX, whole=True)
    if "countdown" in given and "eta" in given:
        raise PayloadError("eta", "give countdown or eta, not both")
    check_instant("eta", given.get("eta"))
    if "mode" in given:
        check_word("mode", given["mode"], DEDUP_MODES)
    if "pass_results" in given:
        check_word("pass_results", given["pass_results"], PASS_RESULTS)


def _parents(given: Iterable[AsyncResult | UUID | str]) -> list[UUID]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise PayloadError("parents", f"must be a list of results or ids of jobs, not {given!r}")
    return [parent.id if isinstance(parent, AsyncResult) else uuid_of("parents", parent) for parent in given]


def new_job(task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], options: Mapping[str, Any]) -> NewJob:
    """Make the request: what is given in `options` goes before the task's own. Raises as `Task.apply_async` does."""
    return next(new_jobs(task, [(args, kwargs, options)]))


def new_jobs(task: Task[..., Any], calls: Iterable[Call]) -> Iterator[NewJob]:
    """Make requests. Options that are one object for several calls in a row are looked at once."""
    shared: Mapping[str, Any] | None = None
    for args, kwargs, options in calls:
        _check_arguments(args, kwargs)
        if options is not shared:
            shared, given = options, {name: value for name, value in options.items() if value is not None}
            _check(given)
            common = _common(task, given)
            before, behind = common[2:_KEY], common[_KEY + 1 :]
        key = _key(task, args, kwargs, given)
        # By position: by name, or as a copy with other values, it takes three times as long.
        yield NewJob._make((task.name, {"args": list(args), "kwargs": dict(kwargs)}, *before, key, *behind))


def _common(task: Task[..., Any], given: Mapping[str, Any]) -> NewJob:
    """A request without arguments and key."""
    own = task.options
    return NewJob(
        task=task.name,
        payload={},
        queue=given.get("queue", own.queue),
        scope=given.get("scope", ""),
        priority=given.get("priority", own.priority),
        tier=own.tier,
        **task.stamped,
        available_at=given.get("eta"),
        countdown=given.get("countdown"),
        lease_seconds=given.get("lease", own.lease),
        attempts_max=given.get("max_attempts", own.max_attempts),
        dedup_mode=given.get("mode", own.dedup.mode if own.dedup is not None else "join"),
        job_id=uuid_of("task_id", given["task_id"]) if "task_id" in given else None,
        **_end(given.get("expires", own.expires)),
        parents=_parents(given.get("parents", ())),
        on_parent_failure=given.get("on_parent_failure", "cancel"),
        pass_results=given.get("pass_results", "none"),
    )


def _key(task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], given: Mapping[str, Any]) -> str | None:
    """Dedup key of a request; checks that the arguments fit the function.

    A job with parents waits for them, so it cannot join one that does not: the task's own key is left out.
    """
    passed = _PASSED[given.get("pass_results", "none")]
    _check_fit(task, len(passed) + len(args), tuple(kwargs))
    key: str | None = given.get("dedup_key")
    own = task.options.dedup
    if key is None and own is not None and not (given.get("parents") and own.mode == "join"):
        bound = task.parameters.bind(*passed, *args, **kwargs)
        bound.apply_defaults()
        key = own.key(given.get("scope", ""), bound.arguments)
    if key is None and "mode" in given:
        raise PayloadError("mode", "means nothing without dedup_key= or the task's dedup=")
    return key


@lru_cache(1024)
def _check_fit(task: Task[..., Any], positional: int, keywords: tuple[str, ...]) -> None:
    """Raise TypeError unless the function takes so many positional arguments and these keywords, whatever they are."""
    try:
        task.parameters.bind(*(None,) * positional, **dict.fromkeys(keywords))
    except TypeError as error:
        raise TypeError(f"{task.name}: {error}") from None
