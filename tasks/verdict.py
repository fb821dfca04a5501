"""How an attempt ended, as a value: what is left to be written into its job."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tasks.errors import Postpone, Quarantine, Reject, Retry, error_code

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.task import Task


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The function returned; its result is to be written (T2)."""

    result: Any


@dataclass(frozen=True, slots=True)
class Committed:
    """A transactional task: its rows and its success are committed already."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A transactional task whose finish the database refused: all that it wrote is rolled back."""

    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """T3 with one of `retry_delays` (seconds, by attempt), or T4 when that is None or the budget is spent.

    `spread` is the jitter, a fraction of the delay either way.
    """

    code: str
    detail: str
    retry_delays: Sequence[float] | None
    spread: float = 0.0


@dataclass(frozen=True, slots=True)
class Postponed:
    """T9: again in `seconds`, without a charge."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Quarantined:
    """T10: never again; the evidence is kept."""

    code: str
    detail: str


Verdict = Succeeded | Committed | Refused | Failed | Postponed | Quarantined


def describe(error: BaseException) -> str:
    """Type and message in one text. Never raises, not even for an exception whose `str` does."""
    return "".join(traceback.format_exception_only(error)).strip()


def verdict_of(
    # one line for each way to end
    error: BaseException,
    task: Task[..., Any],
    attempts_max: int,
) -> Verdict:
    """What an exception that left the task says about its job."""
    if isinstance(error, Postpone):
        return Postponed(error.seconds)
    if isinstance(error, Quarantine):
        return Quarantined(error.code, error.detail)
    if isinstance(error, Reject):
        return Failed(error.code, error.detail, None)
    policy = task.options.retry
    if isinstance(error, Retry):
        cause = error.__cause__ or error.__context__ or error
        if error.countdown is not None:
            return Failed(error_code(cause), describe(cause), [error.countdown])
        return Failed(error_code(cause), describe(cause), policy.delays(attempts_max), policy.spread)
    if not task.options.retries(error):
        return Failed(error_code(error), describe(error), None)
    return Failed(error_code(error), describe(error), policy.delays(attempts_max), policy.spread)
