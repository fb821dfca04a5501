from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tasks.prefetch import AHEAD_MAX, MIX, RunTimes


def claims(*tasks: str) -> Any:
    return [SimpleNamespace(task=task) for task in tasks]


def times(**means: float) -> RunTimes:
    found = RunTimes()
    for task, seconds in means.items():
        found.ran(task, seconds)
    return found


def test_nothing_is_claimed_ahead_before_a_job_has_run() -> None:
    found = RunTimes()
    assert found.ahead(4) == 0
    found.claimed(["new"])
    assert found.ahead(4) == 0, "a task that has not run counts as a long one"


@pytest.mark.parametrize(("seconds", "ahead"), [(0.0, AHEAD_MAX), (0.01, 38), (0.05, 6), (0.15, 0), (0.2, 0), (30, 0)])
def test_as_much_is_claimed_ahead_as_runs_within_a_moment(seconds: float, ahead: int) -> None:
    found = times(task=seconds)
    found.claimed(["task"])
    assert found.ahead(2) == pytest.approx(ahead, abs=1)


def test_the_newest_claims_tell_what_comes() -> None:
    found = times(short=0.0, long=10.0)
    found.claimed(["short"] * MIX)
    assert found.ahead(2) == AHEAD_MAX
    found.claimed(["long"] * 5)
    assert found.ahead(2) == 0
    found.claimed(["short"] * MIX)
    assert found.ahead(2) == AHEAD_MAX
    found.forget_claims()
    assert found.ahead(2) == 0


def test_mean_follows_a_task_that_became_slow() -> None:
    found = times(task=0.001)
    found.claimed(["task"])
    for _ in range(10):
        found.ran("task", 5.0)
    assert found.ahead(2) == 0


def test_of_long_tasks_one_is_kept_ahead_of_each_slot() -> None:
    found = times(short=0.0001, long=10.0)
    assert found.share(claims(*["long"] * 10), 2) == 4
    assert found.share(claims(*["new"] * 10), 3) == 6
    assert found.share(claims(*["short"] * 100), 1) == 100
    assert found.share(claims(*["short"] * 5, *["long"] * 10), 1) == 7
    assert found.share([], 1) == 0
