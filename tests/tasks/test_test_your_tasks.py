"""The page on testing is itself under test."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import Phase, settings

pytestmark = pytest.mark.integration

PAGE = Path(__file__).parents[2] / "docs/how-to/test-your-tasks.md"


def test_examples_run_as_they_stand(database_url: str, committed_db: psycopg.Connection[Any]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    # Not shrunk, for it takes a while; the same histories in every run, until the planted fault is found.
    few = settings(max_examples=1000, stateful_step_count=20, derandomize=True, phases=[Phase.generate])
    given = {"URL": database_url, "conn": committed_db, "few": few, "__name__": "examples"}
    page = doctest.DocTestParser().get_doctest(text, given, PAGE.name, str(PAGE), 0)
    assert len(page.examples) > 35
    report: list[str] = []
    failed, _ = doctest.DocTestRunner().run(page, out=report.append)
    assert not failed, "".join(report)
