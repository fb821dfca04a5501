"""What a command does not load: each of these costs every user of every command some milliseconds."""

import subprocess
import sys
from pathlib import Path

from tests.hub.client.packs import history
from tests.hub.client.scripted import Reply, ScriptedServer, answer

SERVERS = ("flask", "sqlalchemy", "boto3", "psycopg", "apscheduler", "werkzeug", "tasks", "storage")
NEEDLESS = ("rich", "pathspec", "asyncio", "concurrent")
OTHERS = ("hub.app", "hub.cli.push", "hub.client.tree", "hub.client.upload", "hub.pack.writer", "tomllib")
COMMAND = """
import sys
from hub.cli import main
sys.argv[0] = "packhouse"
try:
    main()
finally:
    print(*sys.modules)
"""


def imported_by(home: Path, *arguments: str) -> set[str]:
    command = [sys.executable, "-c", COMMAND, *arguments]
    environ = {"HOME": str(home), "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=environ)
    return set(done.stdout.split("\n")[-2].split())


def test_clone_imports_only_what_it_needs(server: ScriptedServer, tmp_path: Path) -> None:
    told = history({"a": b"1", "b/c": b"2"})
    server.on("POST", "fetch/mpack", answer(told.offer(f"{server.root}/pack")))
    server.on("GET", "/pack", Reply(200, told.pack))
    imported = imported_by(tmp_path, "clone", server.url, str(tmp_path / "copy"))
    assert (tmp_path / "copy" / "b" / "c").read_bytes() == b"2"
    assert imported.intersection(SERVERS + NEEDLESS + OTHERS) == set()


def test_no_command_of_the_client_imports_what_belongs_to_the_server(tmp_path: Path) -> None:
    for command in ("push", "pull", "log", "login"):
        imported = imported_by(tmp_path, command, "--help")
        assert imported.intersection((*SERVERS, "rich", "pathspec", "asyncio")) == set()
