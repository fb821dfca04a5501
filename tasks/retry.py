"""Retry policies: how long to wait after the first, second, … failed run. Pure; the row's counter picks one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tasks.errors import PayloadError
from tasks.payload import check_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence


class Policy(Protocol):
    """What `max_attempts` runs of a task wait for in between."""

    @property
    def spread(self) -> float:
        """Jitter: a fraction of the delay, either way."""

    def delays(self, attempts_max: int) -> list[float]:
        """Seconds after each failed run but the last; at least one number."""


class Exponential:
    """`base` seconds, then `factor` times as long each time, never more than `cap`.

    Jitter keeps jobs that failed together from coming back together.
    """

    def __init__(self, base: float = 2.0, factor: float = 2.0, cap: float = 600.0, *, jitter: bool = True) -> None:
        """Raises PayloadError for a number that makes no sense."""
        self.base = check_seconds("base", base)
        self.factor = check_seconds("factor", factor, least=1.0)
        self.cap = check_seconds("cap", cap)
        self.spread = 0.25 if jitter else 0.0

    def delays(self, attempts_max: int) -> list[float]:
        """Seconds after each failed run but the last; at least one number."""
        delays: list[float] = []
        delay = min(self.base, self.cap)
        for _ in range(max(1, attempts_max - 1)):
            delays.append(delay)
            delay = min(delay * self.factor, self.cap)
        return delays


class Schedule:
    """These delays in turn; the last one goes on for ever."""

    spread = 0.0

    def __init__(self, delays: Sequence[float]) -> None:
        """Raises PayloadError for an empty list or a number that makes no sense."""
        if not isinstance(delays, (list, tuple)) or not delays:
            raise PayloadError("delays", f"must be a list of at least one number of seconds, not {delays!r}")
        self._delays = [check_seconds("delays", delay) for delay in delays]

    def delays(self, attempts_max: int) -> list[float]:
        """Seconds after each failed run but the last; at least one number."""
        missing = max(1, attempts_max - 1) - len(self._delays)
        return (self._delays + [self._delays[-1]] * max(0, missing))[: max(1, attempts_max - 1)]


class Fixed(Schedule):
    """The same delay each time."""

    def __init__(self, seconds: float) -> None:
        """Raises PayloadError for a number that makes no sense."""
        super().__init__([seconds])
