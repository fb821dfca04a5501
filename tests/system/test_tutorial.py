"""The tutorial's application, taken from the page, in a process that cannot import the hub."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from alembic import command
from alembic.config import Config

pytestmark = [pytest.mark.integration, pytest.mark.system]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/tutorial-tasks.md"
RUN_SECONDS = 90


def files_of_the_page() -> dict[str, str]:
    """The files that the page shows: a line that begins with the name, then the text."""
    found = re.findall(r"^`([a-z_]+\.py)`[^\n]*:\n\n```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return dict(found)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    files = files_of_the_page()
    assert set(files) == {"shop.py", "wsgi.py", "test_shop.py"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    for room in ("hub", "storage"):
        (tmp_path / f"{room}.py").write_text("raise ImportError('an application of its own has no such package')\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


@pytest.fixture
def environment(new_database: Callable[[], str], shop: Path) -> dict[str, str]:
    """A database with the queue alone."""
    url = new_database()
    config = Config(ROOT / "setup.cfg")
    config.set_main_option("script_location", str(ROOT / "migrations"))
    config.attributes["database_url"] = url
    command.upgrade(config, "tasks@head")
    with psycopg.connect(url) as conn:
        schemas = conn.execute("SELECT nspname FROM pg_namespace WHERE nspname IN ('tasks', 'hub')").fetchall()
    assert schemas == [("tasks",)]
    return {**os.environ, "DATABASE_URL": url, "PYTHONPATH": os.pathsep.join([str(shop), str(ROOT)])}


def run(shop: Path, environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=shop,
        env=environment,
        timeout=RUN_SECONDS,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_tutorials_own_tests_pass_without_the_hub(shop: Path, environment: dict[str, str]) -> None:
    assert run(shop, environment, "-c", "import hub").returncode != 0
    ended = run(shop, environment, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shop.py")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "3 passed" in ended.stdout


def test_the_command_line_of_the_tutorial_works_without_the_hub(shop: Path, environment: dict[str, str]) -> None:
    order = "from wsgi import app; print(app.test_client().post('/orders', json={'email': 'a@b'}).json['job'])"
    job_id = run(shop, environment, "-c", order).stdout.strip()
    why = run(shop, environment, "-m", "tasks", "--app", "wsgi:work", "jobs", "why", job_id)
    assert (why.returncode, why.stderr) == (0, "")
    assert "no live worker knows the task order.confirm" in why.stdout
    schedules = run(shop, environment, "-m", "tasks", "--app", "wsgi:work", "schedules", "--year", "2027")
    assert len(schedules.stdout.splitlines()) == 365
