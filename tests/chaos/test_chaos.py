from __future__ import annotations

import json
import sys

import pytest

from tests.chaos.plan import RESTARTS, blows
from tests.chaos.run import run


def test_plan_follows_from_the_seed_and_has_every_kind_of_blow() -> None:
    assert blows(7, 30) == blows(7, 30) != blows(8, 30)
    kinds = [blow.kind for blow in blows(7, 30)]
    assert kinds.count("restart") == len(RESTARTS)
    assert {"kill worker", "kill sweep", "cut connection"} < set(kinds)
    assert all(0 <= blow.at < 30 for blow in blows(7, 30))


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.integration
@pytest.mark.timeout(300)
def test_nothing_is_lost_and_throughput_is_back_when_everything_is_killed_at_random() -> None:
    """Case 32: the server restarts three times, connections are cut, workers and sweeps killed; oracle (a) to (f)."""
    # Other tests run beside this one: `make chaos` is what holds the ten seconds.
    report = run(seed=1, seconds=30, back_seconds_max=30)
    sys.stdout.write(json.dumps(report) + "\n")
    assert report["killed"]["worker"] > 5
    assert report["killed"]["connection"] > 10
    assert len(report["restarts"]) == len(RESTARTS)
    assert report["attempts"]["ABANDONED"] > 0, "no worker was killed while it held a job"
    assert report["attempts"]["FAILED"] > 0, "the store never failed"
