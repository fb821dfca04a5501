"""How a task was declared: the options of `@app.task`, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from tasks.dedup import Dedup
from tasks.gates import Gate, stamp
from tasks.options import (
    ATTEMPTS_MAX,
    LEASE_SECONDS_MAX,
    LEASE_SECONDS_MIN,
    PRIORITY_MAX,
    PRIORITY_MIN,
    TIER_MAX,
    TIME_LIMIT_MAX,
    check_name,
    check_number,
)
from tasks.payload import SECONDS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from sqlalchemy.orm import Session

    from tasks.db import Conn
    from tasks.retry import Policy


class Configuration(TypedDict, total=False):
    """What `App.configure` takes; None: as if not given."""

    database_url: str | None
    session: Callable[[], Session] | None
    current: Callable[[], Conn] | None
    around: Callable[[], AbstractContextManager[object]] | None
    keep: Mapping[str, float] | None
    eager: bool | None
    eager_propagates: bool | None


class Options(TypedDict, total=False):
    """What `@app.task` takes beside the name and `bind`; see `App.task`."""

    queue: str
    priority: int
    tier: int
    gate: Gate | None
    dedup: Dedup | None
    lease: float
    expires: float | None
    max_attempts: int | None
    max_retries: int | None
    retry: Policy
    transactional: bool
    soft_time_limit: float | None
    time_limit: float | None
    autoretry_for: tuple[type[BaseException], ...]
    dont_retry_for: tuple[type[BaseException], ...]


TASK_OPTIONS = ("bind", *Options.__annotations__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """How the jobs of a task are queued and tried. `lease`, `tier` and the time limits are in seconds."""

    retry: Policy
    bind: bool = False
    queue: str = "default"
    priority: int = 0
    tier: int = 0
    gate: Gate | None = None
    dedup: Dedup | None = None
    lease: float = 60.0
    expires: float | None = None
    max_attempts: int = 5
    transactional: bool = False
    soft_time_limit: float | None = None
    time_limit: float | None = None
    autoretry_for: tuple[type[BaseException], ...] = (Exception,)
    dont_retry_for: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        """Refuse what could not work, naming the option. Raises ValueError."""
        check_name(self.queue, "queue")
        check_number("priority", self.priority, PRIORITY_MIN, PRIORITY_MAX, whole=True)
        check_number("tier", self.tier, 0, TIER_MAX, whole=True)
        check_number("lease", self.lease, LEASE_SECONDS_MIN, LEASE_SECONDS_MAX)
        check_number("max_attempts", self.max_attempts, 1, ATTEMPTS_MAX, whole=True)
        for limit in ("soft_time_limit", "time_limit"):
            if getattr(self, limit) is not None:
                check_number(limit, getattr(self, limit), 0.001, TIME_LIMIT_MAX)
        if self.soft_time_limit is not None and self.time_limit is not None and self.soft_time_limit >= self.time_limit:
            raise ValueError("soft_time_limit must be less than time_limit: the task would never notice it")
        for flag in ("bind", "transactional"):
            if type(getattr(self, flag)) is not bool:
                raise ValueError(f"{flag} must be True or False, not {getattr(self, flag)!r}")
        if self.expires is not None:
            check_number("expires", self.expires, 0, SECONDS_MAX)
        if not callable(getattr(self.retry, "delays", None)):
            raise TypeError(f"retry must be a policy such as Exponential(…) or Fixed(…), not {self.retry!r}")
        self.retry.delays(self.max_attempts)
        stamp(self.gate)
        if self.dedup is not None and not isinstance(self.dedup, Dedup):
            raise ValueError(f"dedup must be Dedup(…), not {self.dedup!r}")
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
