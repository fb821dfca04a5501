"""A worker's memory does not grow with what waits or fails. Slow: it takes many jobs to show."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
GROWTH_MB = 4
"""A hundred bytes for each failed job would be seen; measured is 1 at most."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("load", ["waiting", "failing"])
def test_a_worker_does_not_grow(load: str, database_url: str, committed_db: psycopg.Connection[Any]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.tasks.growth", load],
        cwd=ROOT,
        env=os.environ | {"DATABASE_URL": database_url},
        stdout=subprocess.PIPE,
        text=True,
        timeout=800,
        check=True,
    )
    assert float(done.stdout) < GROWTH_MB
    committed_db.execute("TRUNCATE tasks.job")
    committed_db.commit()
