"""How many jobs a worker claims ahead of its slots: as many as it expects to run within a moment."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tasks.job import Claim

AHEAD_SECONDS = 0.2
"""A claimed job is expected to start within this time; what takes longer is not claimed before a slot is free."""
AHEAD_MAX = 900
"""Three batches: one that runs while others are being settled and replaced."""
WEIGHT = 0.2
"""Of the newest run in the mean of its task: after a change, ten runs bring the mean near the new time."""
MIX = 50
"""How many of the newest claims tell what the next ones will be."""


class RunTimes:
    """Mean run time of each task, and from it the number of jobs that may wait in this worker.

    A task that has not run here counts as a long one, so that the first jobs are never claimed ahead.
    """

    def __init__(self) -> None:
        self._mean: dict[str, float] = {}
        self._claimed: deque[str] = deque(maxlen=MIX)

    def ran(self, task: str, seconds: float) -> None:
        """Note how long a job of `task` took."""
        mean = self._mean.get(task)
        self._mean[task] = seconds if mean is None else mean + WEIGHT * (seconds - mean)

    def claimed(self, tasks: Iterable[str]) -> None:
        """Note of which tasks the newest claims were. One thread at a time."""
        self._claimed.extend(tasks)

    def forget_claims(self) -> None:
        """Claim nothing ahead until new claims tell what the next ones will be. One thread at a time."""
        self._claimed.clear()

    def expected(self, task: str) -> float:
        """Seconds that a job of `task` is expected to take."""
        return self._mean.get(task, AHEAD_SECONDS)

    def ahead(self, slots: int) -> int:
        """Jobs to hold beyond one per slot: 0 for tasks as long as AHEAD_SECONDS, at most AHEAD_MAX."""
        if not self._claimed:
            return 0
        mean = sum(map(self.expected, self._claimed)) / len(self._claimed)
        # A slot whose job is as long as the moment has none waiting behind it.
        return max(0, min(AHEAD_MAX, int(slots * (AHEAD_SECONDS / max(mean, 1e-6) - 1))))

    def share(self, claims: Sequence[Claim], slots: int) -> int:
        """How many of the claims, from the first on, `slots` may keep: of long tasks one ahead per slot."""
        load = 0.0  # in moments of AHEAD_SECONDS
        for place, claim in enumerate(claims):
            if load >= 2 * slots:
                return place
            load += min(self.expected(claim.task) / AHEAD_SECONDS, 1.0)
        return len(claims)
