"""Tables for people: whole on any terminal."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import pytest

from tasks import render

AT = datetime(2026, 12, 1, 4, 1, 2, tzinfo=UTC)
LONG = {
    "job_id": uuid4(),
    "task": "reports.nightly_report_for_everybody",
    "status": "quarantined",
    "created_at": AT,
    "reason": None,
}
SCHEDULE = {
    "name": "gc.all",
    "task": "gc.all",
    "rhythm": "cron 23 3 * * * UTC",
    "missed": "one",
    "last_nominal_at": AT,
    "next_nominal_at": AT,
    "skipped": 0,
}
SHORT = {"name": "example", "at": AT, "more": "a sentence of some words that is longer than what is left of eighty"}


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.mark.usefixtures("narrow")
def test_columns_that_do_not_fit_a_terminal_come_one_below_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    render.print_table([LONG, {**LONG, "reason": "x" * 100}])
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[:5] == [
        f"job_id      {LONG['job_id']}",
        "task        reports.nightly_report_for_everybody",
        "status      quarantined",
        "created_at  2026-12-01 04:01:02Z",
        "",
    ]
    assert "".join(line[12:] for line in lines[9:]) == "x" * 100
    assert max(map(len, lines)) <= 80


@pytest.mark.usefixtures("narrow")
def test_words_break_to_a_new_line_and_instants_never(capsys: pytest.CaptureFixture[str]) -> None:
    render.print_table([SHORT])
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[1].startswith("example  2026-12-01 04:01:02Z  a sentence")
    assert " ".join(line[31:] for line in lines[1:]) == SHORT["more"]
    assert max(map(len, lines)) <= 80


@pytest.mark.usefixtures("narrow")
def test_short_words_are_not_broken_to_make_room_for_instants(capsys: pytest.CaptureFixture[str]) -> None:
    render.print_table([SCHEDULE])
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "name             gc.all"
    assert lines[2] == "rhythm           cron 23 3 * * * UTC"


def test_what_is_not_for_a_terminal_is_a_line_for_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    render.print_table([LONG, {**LONG, "reason": "x" * 300}])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[2].split() == [str(LONG["job_id"]), LONG["task"], "quarantined", "2026-12-01", "04:01:02Z", "x" * 300]
