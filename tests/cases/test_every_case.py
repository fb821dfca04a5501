"""The list of what went wrong elsewhere; each number stands in the docstring of a test that proves it is right here."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

CASES = {
    1: "a sweep that decides on a stale snapshot takes back no job that has ended",
    2: "a zombie of an earlier attempt changes nothing of a newer one",
    3: "a late zombie gives the place of its limit back only once",
    4: "one row that cannot be taken back does not stop the sweep",
    5: "a retry that collides with its own successor ends, and the worker goes on",
    6: "a crash loop spends the budget and no more",
    7: "a task longer than its lease has one success, even if it blocks the interpreter",
    8: "claims that wait for a slot do not expire",
    9: "ownership is by claim, never by a worker's name",
    10: "two sweeps take each job back once, and a stale one changes nothing",
    11: "a restart of the database in mid-sweep loses no row",
    12: "a sweep that is killed blocks nobody",
    14: "success is final against sweep and retention",
    15: "a restart never runs two jobs of one limit",
    17: "clocks of workers decide nothing",
    18: "the budget of attempts is exact on every path",
    20: "a push while its key runs is not lost",
    21: "a run starts after each push, however it interleaves with the finish",
    22: "a rollback swallows nobody else's enqueue",
    23: "the key of a dead job comes free",
    24: "a parent that ends while its child is added wakes the child once",
    25: "a parent that dies without a word makes its child follow the policy",
    26: "a wall of gated jobs hides nothing and costs little",
    28: "text that cannot be stored is refused by field or ends the attempt",
    29: "huge errors, results and arguments are cut or refused; the bell stays small",
    30: "periodic tasks across changes of the clock, restarts and several schedulers",
    32: "restarts and cut connections under load: throughput is back, nothing is lost",
    34: "cancel and finish come to one end",
    35: "a store that fails in mid-task costs attempts; the last valid token's object counts",
    37: "a late commit and a gap in the sequence hide nothing",
    39: "an old snapshot does not stop the claims",
    40: "unknown tasks and old signatures are visible and can be dropped",
    41: "one killed process of several is replaced, and a parent that gives up says so",
    43: "lists and figures answer quickly over very many finished jobs",
    45: "behind a pooler in transaction mode all of it works, and a LISTEN by mistake is noticed",
}
TESTS = Path(__file__).parents[1]
NUMBERS = re.compile(r"\b[Cc]ases? (\d+(?:(?:,| and) \d+)*)")


def numbers(docstring: str) -> set[int]:
    return {int(number) for found in NUMBERS.findall(docstring) for number in re.findall(r"\d+", found)}


@pytest.fixture(scope="module")
def named() -> dict[int, list[str]]:
    """The tests whose docstring names a case, by its number."""
    found: dict[int, list[str]] = {}
    for path in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for number in numbers(ast.get_docstring(node) or ""):
                    found.setdefault(number, []).append(f"{path.relative_to(TESTS)}::{node.name}")
    return found


@pytest.mark.parametrize("number", CASES, ids=[f"{number} {sentence}" for number, sentence in CASES.items()])
def test_case_has_a_test(named: dict[int, list[str]], number: int) -> None:
    assert named.get(number), f"no test names case {number}: {CASES[number]}"


def test_no_test_names_a_case_that_is_not_listed(named: dict[int, list[str]]) -> None:
    assert {number: tests for number, tests in named.items() if number not in CASES} == {}


def test_numbers_are_read_from_docstrings() -> None:
    assert numbers("Case 3: one. Race (b); case 20.") == {3, 20}
    assert numbers("Cases 2 and 10: two. T8; cases 4, 5 and 6.") == {2, 10, 4, 5, 6}
    assert numbers("In any case, 7 of them.") == set()
