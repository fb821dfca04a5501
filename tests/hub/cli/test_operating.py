"""What an operator's commands say at the terminal, and with which status they end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import psycopg
import pytest
from click.testing import CliRunner

from hub.cli import packhouse
from tests.system.world import ROOT


def test_gc_ends_well_in_a_process_of_its_own() -> None:
    line = "import sys; from hub.cli import main; sys.argv[1:] = ['gc', '--help']; main()"
    ended = subprocess.run([sys.executable, "-c", line], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_migrate_says_that_the_database_is_away() -> None:
    environ = {"DATABASE_URL": "postgresql://ada:hidden@127.0.0.1:1/none"}
    result = CliRunner().invoke(packhouse, ["migrate"], env=environ)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: The database does not answer; is DATABASE_URL right, and the server up?\n"


@pytest.mark.integration
def test_migrate_says_what_the_database_refused(new_database: Callable[[], str]) -> None:
    url = new_database()
    with psycopg.connect(url) as conn:
        conn.execute("CREATE SCHEMA tasks")
    result = CliRunner().invoke(packhouse, ["migrate"], env={"DATABASE_URL": url})
    assert result.exit_code == 1
    assert 'schema "tasks" already exists' in result.stderr
    assert "Traceback" not in result.stderr
