"""The page for those who come from Celery says what the code does."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import tasks
from tasks import options
from tasks.call import CallOptions
from tasks.declared import Options
from tasks.states import Status

PAGE = (Path(__file__).parents[2] / "docs/coming-from-celery.md").read_text(encoding="utf-8")
ELSEWHERE = {"name", "bind", "args", "kwargs", "exc", "timeout", "propagate"}
"""Accepted options that are parameters in the signature."""


@pytest.fixture
def app() -> tasks.App:
    return tasks.App("under.test", eager=True)


def test_table_of_options_is_the_one_of_the_code() -> None:
    shown = PAGE.partition("<!-- table: made by tasks.options -->\n")[2].partition("\n<!-- end of table -->")[0]
    assert shown == options.table()


def test_accepted_options_are_accepted() -> None:
    known = {*Options.__annotations__, *CallOptions.__annotations__, *ELSEWHERE}
    assert set(options.ACCEPTED) <= known
    assert set(options.SAME) <= set(options.REFUSED)
    parameters = {
        *inspect.signature(tasks.AsyncResult.get).parameters,
        *inspect.signature(tasks.Context.retry).parameters,
        *inspect.signature(tasks.Task.apply_async).parameters,
        *inspect.signature(tasks.App.task).parameters,
        "bind",
    }
    assert parameters >= ELSEWHERE


@pytest.mark.parametrize("option", sorted(set(options.REFUSED) - set(Options.__annotations__)))
def test_refused_option_is_refused_wherever_it_is_given(app: tasks.App, option: str) -> None:
    given: dict[str, Any] = {option: object()}
    add = app.task("add")(lambda x, y: x + y)
    result = add.delay(1, 2)
    for call in (
        lambda: app.task("other", **given)(lambda: None),
        lambda: add.apply_async((1, 2), **given),
        lambda: add.s(1, 2).set(**given),
        lambda: add.apply_many([(1, 2)], **given),
        lambda: result.get(**given),
        lambda: tasks.App("other", **given),
    ):
        with pytest.raises(tasks.UnknownOption) as refusal:
            call()
        assert refusal.value.option == option
        assert options.REFUSED[option] in str(refusal.value)


@pytest.mark.parametrize(("option", "value"), sorted(options.SAME.items()))
def test_option_with_the_value_that_holds_anyway_is_accepted(app: tasks.App, option: str, value: object) -> None:
    add = app.task("add", **{option: value})(lambda x, y: x + y)
    assert add.delay(1, 2).get() == 3


def test_names_of_the_table_exist() -> None:
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", PAGE.partition("## Names")[2].partition("## States")[0], re.MULTILINE)
    assert len(rows) > 25
    ours = " ".join(here for _, here in rows)
    for name in ("App", "AsyncResult", "Reject", "Limit", "JobTerminal", "crontab", "chain"):
        assert name in ours
        assert hasattr(tasks, name), name
    for name in ("delay", "apply_async", "apply_many", "s", "si", "signature"):
        assert hasattr(tasks.Task, name)
    for name in ("get", "ready", "successful", "failed", "state", "result", "revoke"):
        assert hasattr(tasks.AsyncResult, name)


def test_table_of_states_names_each_of_ours() -> None:
    rows = PAGE.partition("## States")[2].partition("## Results")[0]
    assert {status for status in Status if f"`{status}`" in rows} == set(Status)
