from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tasks

ROOT = Path(__file__).parents[2]


@pytest.fixture
def app() -> tasks.App:
    return tasks.App("under.test")


def test_task_is_registered_under_its_name(app: tasks.App) -> None:
    @app.task("mpack.index")
    def index() -> str:
        return "here"

    assert app["mpack.index"] is index
    assert list(app) == ["mpack.index"]


def test_bare_decorator_names_a_task_by_module_and_function(app: tasks.App) -> None:
    @app.task
    def add(x: int, y: int) -> int:
        return x + y

    assert add.name == f"{__name__}.add"
    assert add(1, 2) == 3


def test_two_tasks_with_one_name_are_refused_naming_both(app: tasks.App) -> None:
    app.task("mpack.index")(_first)
    with pytest.raises(ValueError, match=r"mpack\.index is registered twice: by .*_first and .*_second"):
        app.task("mpack.index")(_second)


def _first() -> None: ...


def _second() -> None: ...


@pytest.mark.parametrize("name", ["", "mpack..index", ".index", "mpack index", "mpäck", "1st", "a" * 201])
def test_bad_task_name_is_refused_when_it_is_declared(app: tasks.App, name: str) -> None:
    with pytest.raises(ValueError, match="task name"):
        app.task(name)(_first)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"lease": 0.5}, "lease"),
        ({"lease": True}, "lease"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": 2.5}, "max_attempts"),
        ({"max_retries": -1}, "max_retries"),
        ({"max_retries": 1, "max_attempts": 2}, "not both"),
        ({"priority": 40_000}, "priority"),
        ({"tier": -1}, "tier"),
        ({"queue": "no spaces"}, "queue"),
        ({"gate": "mpack.index"}, "gate"),
        ({"dedup": "mpack_key"}, "dedup"),
        ({"autoretry_for": Exception}, "autoretry_for"),
        ({"dont_retry_for": ("KeyError",)}, "dont_retry_for"),
        ({"dedup": tasks.Dedup(by=("mpack_key",))}, "mpack_key"),
        ({"soft_time_limit": 5, "time_limit": 5}, "soft_time_limit must be less"),
        ({"transactional": "yes"}, "transactional"),
        ({"bind": 1}, "bind"),
    ],
)
def test_bad_option_value_is_refused_naming_the_option(app: tasks.App, options: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        app.task("mpack.index", **options)(_first)
    assert "mpack.index" not in app


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("acks_late", False, "acknowledged when it has ended"),
        ("serializer", "pickle", "JSON"),
        ("link", None, "chain"),
        ("rate_limit", "10/m", "Limit"),
        ("retry_backoff", True, "Exponential"),
        ("nonsense", 1, "known are autoretry_for, bind"),
    ],
)
def test_option_that_cannot_be_honoured_is_refused_by_name(
    app: tasks.App, option: str, value: object, why: str
) -> None:
    options: dict[str, Any] = {option: value}
    with pytest.raises(tasks.UnknownOption, match=why) as refusal:
        app.task("mpack.index", **options)(_first)
    assert refusal.value.option == option


@pytest.mark.parametrize(("option", "value"), [("acks_late", True), ("serializer", "json")])
def test_celery_option_that_says_what_happens_anyway_is_accepted(app: tasks.App, option: str, value: object) -> None:
    options: dict[str, Any] = {option: value}
    assert app.task("mpack.index", **options)(_first).name == "mpack.index"


def test_max_retries_counts_one_less_than_max_attempts(app: tasks.App) -> None:
    assert app.task("a", max_retries=3)(_first).options.max_attempts == 4
    assert app.task("b", max_attempts=3)(_first).options.max_attempts == 3


def test_retry_that_is_no_policy_is_refused(app: tasks.App) -> None:
    options: dict[str, Any] = {"retry": 5}
    with pytest.raises(TypeError, match="retry must be a policy"):
        app.task("mpack.index", **options)(_first)


def test_bound_task_without_a_parameter_is_refused(app: tasks.App) -> None:
    function: Any = _first
    with pytest.raises(ValueError, match="first parameter"):
        app.task("mpack.index", bind=True)(function)


def test_async_function_is_refused(app: tasks.App) -> None:
    async def index() -> None: ...

    with pytest.raises(ValueError, match="plain function"):
        app.task("mpack.index")(index)


def test_malformed_database_url_is_refused_without_being_shown(app: tasks.App) -> None:
    with pytest.raises(ValueError, match="postgresql://") as refusal:
        app.configure(database_url="postgresql:/user:s3cret@host/name")
    assert "s3cret" not in str(refusal.value)
    assert refusal.value.__cause__ is None


@pytest.mark.parametrize("name", ["session", "current", "around"])
def test_a_session_in_the_place_of_a_function_is_refused(app: tasks.App, name: str) -> None:
    given: Any = {name: object()}
    with pytest.raises(ValueError, match=f"^{name} must be a function"):
        app.configure(**given)


def test_configuring_again_keeps_what_is_not_given(app: tasks.App) -> None:
    app.configure(database_url="postgresql://localhost/one")
    app.configure(current=lambda: None)  # type: ignore[arg-type, return-value]
    assert app.database_url == "postgresql://localhost/one"


def test_what_is_not_configured_is_said_by_name(app: tasks.App) -> None:
    with pytest.raises(tasks.NotConfigured, match="database_url"):
        _ = app.database_url
    with pytest.raises(tasks.NotConfigured, match="session="):
        app.current_session()
    with pytest.raises(tasks.NotConfigured, match="session="):
        app.new_session()


def test_queues_are_those_that_tasks_name_and_default(app: tasks.App) -> None:
    app.task("mpack.index", queue="slow")(_first)
    assert app.queues() == ("default", "slow")


def test_tasks_works_where_hub_and_flask_cannot_be_imported() -> None:
    program = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"hub", "storage", "flask", "boto3", "flask_sqlalchemy"}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Refuse())
import tasks, tasks.cli, tasks.testing, tasks.timers, tasks.__main__

app = tasks.App("alone")

@app.task("add", bind=True)
def add(self, x, y):
    return x + y

print(add(1, 2))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("3\n", "", 0)
