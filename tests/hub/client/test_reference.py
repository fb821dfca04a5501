"""The reference of the client's commands names every one, with all of its options, and no other."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import click
import pytest

from hub.cli import packhouse
from hub.client.answers import Refs
from hub.client.api_answers import Collaborator, LogEntry, RepositoryInfo, Whoami
from hub.client.cloning import CloneResult
from hub.client.errors import ClientError
from hub.client.fetching import FetchResult, Moved
from hub.client.log import Log
from hub.client.muse_pushing import MusePushResult
from hub.client.pulling import PullResult
from hub.client.pushing import PushResult

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "client.md").read_text()
COMMON = {"--json", "-q", "--quiet", "--insecure"}
NAMES = (
    *("login", "logout", "whoami", "repo create", "repo list", "repo show", "repo visibility"),
    *("repo collaborators list", "repo collaborators set", "repo collaborators remove"),
    *("push", "clone", "pull", "fetch", "log", "ls-remote"),
)
SECTIONS = {
    match[1]: match[2]
    for match in re.finditer(r"^### `packhouse (.+?)`\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
}
NOT_TOLD = {"note", "entries", "snapshots", "inline_bytes"}
RESULTS = {
    "login": (Whoami,),
    "repo create": (RepositoryInfo,),
    "repo collaborators list": (Collaborator,),
    "repo collaborators set": (Collaborator,),
    "push": (PushResult, MusePushResult),
    "clone": (CloneResult,),
    "pull": (PullResult,),
    "fetch": (FetchResult, Moved),
    "log": (Log, LogEntry),
    "ls-remote": (Refs,),
}


def command_of(name: str) -> click.Command:
    command: click.Command = packhouse
    context = click.Context(packhouse)
    for part in name.split():
        assert isinstance(command, click.Group)
        found = command.get_command(context, part)
        assert found is not None
        command = found
    return command


def section_of(name: str) -> str:
    return next(text for title, text in SECTIONS.items() if title.startswith(f"{name} "))


def test_every_command_has_its_section_with_its_arguments() -> None:
    expected = []
    for name in NAMES:
        arguments = [item for item in command_of(name).params if isinstance(item, click.Argument)]
        words = [
            item.metavar or (f"{item.name}".upper() if item.required else f"[{item.name}]".upper())
            for item in arguments
        ]
        expected.append(" ".join([name, *words]))
    assert sorted(SECTIONS) == sorted(expected)


@pytest.mark.parametrize("name", NAMES)
def test_section_lists_the_options_of_its_command(name: str) -> None:
    options = {
        text
        for item in command_of(name).params
        if isinstance(item, click.Option) and not item.hidden
        for text in (*item.opts, *item.secondary_opts)
    }
    rows = re.findall(r"^\| (`-.+?) \|", section_of(name), re.MULTILINE)
    assert {text for row in rows for text in re.findall(r"`(.+?)`", row)} == options - COMMON
    assert options >= COMMON


def test_common_options_are_listed_once() -> None:
    rows = re.findall(r"^\| (`-.+?) \|", PAGE.partition("## Accounts")[0], re.MULTILINE)
    assert {text for row in rows for text in re.findall(r"`(.+?)`", row)} == COMMON


@pytest.mark.parametrize("name", RESULTS)
def test_section_names_what_json_tells(name: str) -> None:
    told = {item.name for result in RESULTS[name] for item in fields(result)} - NOT_TOLD
    assert told <= set(re.findall(r"`(\w+)`", section_of(name)))


def test_exit_codes_are_those_of_the_errors() -> None:
    def below(kind: type[ClientError]) -> set[int]:
        return {kind.exit_code}.union(*(below(leaf) for leaf in kind.__subclasses__()))

    assert {int(code) for code in re.findall(r"^\| (\d) \|", PAGE, re.MULTILINE)} == {0} | below(ClientError)
