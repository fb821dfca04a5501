"""What the commands of the client have in common: their options, and how they tell results and errors."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from hub.client import workdir
from hub.client.address import Hub, parse_address
from hub.client.credentials import Credentials
from hub.client.errors import ClientError, LocalConflict, printable
from hub.client.patience import Timing
from hub.client.progress import Progress, open_progress
from hub.client.reserved import Skipped
from hub.client.transport import Remote
from hub.settings import config_home, environment

Command = TypeVar("Command", bound=Callable[..., Any])
SHOWN_SKIPPED = 10


@dataclass(frozen=True, slots=True)
class Access:
    """What a command may send: the token of the environment, else the one of `packhouse login`."""

    token: str | None = field(repr=False)
    insecure: bool

    def token_for(self, hub: Hub) -> str | None:
        """Return the token to send to `hub`, None without one. Raises BadInput for a damaged file of tokens."""
        return self.token or credentials().find(hub.authority)


def credentials() -> Credentials:
    """Return the tokens of the user who runs the command."""
    return Credentials(config_home(environment()) / "packhouse" / "credentials")


def client_options(command: Command) -> Command:
    """Add `--json`, `--quiet`, and what becomes `access`: the token is in the environment, out of sight of `ps`."""

    @functools.wraps(command)
    def with_access(*arguments: Any, token: str | None, insecure: bool, **options: Any) -> Any:
        return command(*arguments, access=Access(token, insecure), **options)

    decorated: Any = with_access
    for option in (
        click.option("--token", envvar="PACKHOUSE_TOKEN", hidden=True),
        click.option("--insecure", is_flag=True, help="Send the token over plain http, too."),
        click.option("-q", "--quiet", is_flag=True, help="Show errors only."),
        click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object."),
    ):
        decorated = option(decorated)
    return cast("Command", decorated)


@contextmanager
def connected(
    url: str, access: Access, *, loud: bool, wait_seconds: float = Timing().wait_seconds
) -> Iterator[tuple[Remote, Progress]]:
    """Open the repository at `url`, with bars on the terminal unless they are not wanted."""
    token, timing = access.token_for(parse_address(url)), Timing(wait_seconds=wait_seconds)
    with (
        open_progress(quiet=not loud) as progress,
        Remote(url, token, timing=timing, progress=progress, insecure=access.insecure) as remote,
    ):
        yield remote, progress


def complete_branch(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a branch that the directory one is in knows of."""
    del context, parameter
    try:
        heads = workdir.load_heads(working_directory(Path()))
    except ClientError:
        return []
    return sorted(name for name in heads if name.startswith(incomplete))


def working_directory(place: Path) -> Path:
    """Return the working directory that `place` lies in; `place` itself when there is none."""
    return workdir.find_root(place.resolve()) or place


@contextmanager
def reported(*, as_json: bool) -> Iterator[dict[str, Any]]:
    """Turn the outcome of a command into output and an exit code.

    The block fills the dict with what is to be printed under `--json`; an error adds `error` and `message` to
    it.
    """
    document: dict[str, Any] = {}
    try:
        with _machine_explained():
            yield document
    except ClientError as error:
        if as_json:
            click.echo(
                json.dumps({"ok": False, **document, **error.details, "error": error.code, "message": error.sentence})
            )
        click.echo(f"Error: {error.sentence}", err=True)
        raise click.exceptions.Exit(error.exit_code) from None
    if as_json:
        click.echo(json.dumps({"ok": True, **document}))


@contextmanager
def _machine_explained() -> Iterator[None]:
    """Say in a sentence what this machine cannot do, a full disk for one, wherever in a command it shows."""
    try:
        yield
    except OSError as error:
        if error.strerror is None:
            raise  # not the machine's: an error of the program
        where = f"«{error.filename}» cannot be used" if error.filename else "A file cannot be read or written"
        raise LocalConflict(f"{where}: {error.strerror}. Repeat the command when it can.") from None


def warn_skipped(skipped: Iterable[Skipped]) -> None:
    """Say on stderr what was left out."""
    lines = [f"left out: {printable(item.path)} ({item.reason})" for item in skipped]
    for line in lines[:SHOWN_SKIPPED]:
        click.echo(line, err=True)
    if len(lines) > SHOWN_SKIPPED:
        click.echo(f"left out: {len(lines) - SHOWN_SKIPPED} more (--json lists them all)", err=True)


def skipped_list(skipped: Iterable[Skipped]) -> list[dict[str, str]]:
    """List what was left out, for `--json`."""
    return [{"path": item.path, "reason": item.reason} for item in skipped]


def bytes_text(size: int) -> str:
    """Say a number of bytes as a person would: `532 B`, `1.4 MB`."""
    amount = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def count_text(number: int, noun: str) -> str:
    """Say a count: `1 file`, `1,000 files`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
