"""The page of first steps, run as it stands against a real database and a real worker."""

from __future__ import annotations

import doctest
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg
import pytest

from tasks.timers import Timers
from tasks.worker import Worker

pytestmark = pytest.mark.integration

PAGE = Path(__file__).parents[2] / "docs/first-steps-with-tasks.md"


@pytest.fixture
def work(
    database_url: str, committed_db: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> Iterator[ModuleType]:
    """The page's own module `work`, and a worker that runs its tasks."""
    source = PAGE.read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    module = ModuleType("work")
    module.URL = database_url  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "work", module)
    exec(compile(source, "work.py", "exec"), vars(module))
    yield module
    module.app._current.close()


def test_first_steps_run_as_they_stand(work: ModuleType) -> None:
    page = PAGE.read_text(encoding="utf-8")
    examples = doctest.DocTestParser().get_doctest(page, {**vars(work), "__name__": "work"}, PAGE.name, str(PAGE), 0)
    assert len(examples.examples) > 30
    report: list[str] = []
    worker = Worker(work.app, concurrency=4, grace=0)
    timers = Timers(worker, poll=0.05, sweep=0.2)
    timers.start()
    try:
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        failed, _ = runner.run(examples, out=report.append)
    finally:
        timers.stop()
        worker.close()
    assert not failed, "".join(report)
