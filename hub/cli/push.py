"""`packhouse push`: the files of a directory as a commit on a branch of a hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hub.cli.client_options import (
    bytes_text,
    client_options,
    count_text,
    reported,
    skipped_list,
    warn_skipped,
)
from hub.client import workdir
from hub.client.errors import BadInput
from hub.client.follow import await_prebuilt
from hub.client.progress import open_progress
from hub.client.pushing import PushResult, Wish, push_directory
from hub.client.transport import Remote


@click.command()
@click.argument("places", metavar="[DIR] [URL]", nargs=-1)
@click.option("-m", "--message", required=True, help="What the commit says.")
@click.option("--branch", help="The branch to move; in a clone its own, else «main».")
@click.option("--author", default="", help="Who made the change; empty by default.")
@click.option("--force", is_flag=True, help="Replace a branch that has moved on since this clone was made.")
@click.option("--allow-empty", is_flag=True, help="Commit even when no file has changed.")
@click.option("--no-ignore", is_flag=True, help="Push also what .museignore and .gitignore name.")
@click.option("--wait/--no-wait", default=False, help="Wait until clones can have the push, at most 300 s.")
@client_options
def push(
    places: tuple[str, ...], message: str, branch: str | None, author: str, token: str | None,
    *, force: bool, allow_empty: bool, no_ignore: bool, wait: bool, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Push the files of DIR to the repository at URL.

    DIR is the current directory when it is left out, URL the one that DIR was cloned from or pushed to
    before. Left out are .git, .muse and .packhouse, what .museignore and .gitignore name, and symbolic links,
    which are reported. The token is the one of `packhouse login`, or the environment variable PACKHOUSE_TOKEN.

    Exit codes: 0 done or up to date; 1 refused by the server, or a conflict; 2 wrong usage or an unreadable
    file; 3 the hub cannot be reached; 4 verification failed.
    """
    wish_parts: dict[str, Any] = {"force": force, "allow_empty": allow_empty, "rules": not no_ignore}
    loud = not quiet and not as_json
    with reported(as_json=as_json) as document:
        directory, url = _places(places)
        with open_progress(quiet=not loud) as progress, Remote(url, token, progress=progress) as remote:
            result = push_directory(remote, Wish(directory, message, branch, author, **wish_parts), progress)
        document.update(_document(result))
        if loud:
            _say(result)
        if not wait or result.push_id is None:
            return
        with open_progress(quiet=not loud) as progress, Remote(url, token, progress=progress) as remote:
            document["status"] = await_prebuilt(remote, result.push_id, progress).status
        if loud:
            click.echo("Clones can have it now.")


def _places(places: tuple[str, ...]) -> tuple[Path, str]:
    """Read `[DIR] [URL]`: one argument with «://» in it is a URL."""
    if len(places) > 2:
        raise click.UsageError("Give at most a directory and an address: packhouse push [DIR] [URL] -m MESSAGE")
    url = places[-1] if places and "://" in places[-1] else None
    named = places[: len(places) - (url is not None)]
    if len(named) > 1:
        raise click.UsageError(f"«{named[1]}» is no address: it must begin with http:// or https://")
    directory = Path(named[0]) if named else Path.cwd()
    if url is not None:
        return directory, url
    if not named:
        # Inside a clone, all of it is meant, wherever in it the command is given.
        directory = workdir.find_root(directory) or directory
    known = workdir.load(directory)
    if known is None:
        raise BadInput(
            "This directory was not cloned or pushed before: name the repository's address, "
            "packhouse push DIR URL -m MESSAGE."
        )
    return directory, known.url


def _say(result: PushResult) -> None:
    warn_skipped(result.skipped)
    if result.note:
        click.echo(result.note, err=True)
    if result.up_to_date:
        click.echo("Everything up to date")
        return
    sent = f"{count_text(result.objects_sent, 'new object')}, {bytes_text(result.bytes_sent)}"
    click.echo(f"{result.branch} is now {result.commit_id} ({count_text(result.files, 'file')}; {sent})")


def _document(result: PushResult) -> dict[str, Any]:
    return {
        "url": result.url,
        "branch": result.branch,
        "commit_id": result.commit_id,
        "snapshot_id": result.snapshot_id,
        "parent": result.parent,
        "up_to_date": result.up_to_date,
        "files": result.files,
        "objects_sent": result.objects_sent,
        "bytes_sent": result.bytes_sent,
        "push_id": result.push_id,
        "jobs": [{"id": job.id, "task": job.task, "status": job.status} for job in result.jobs],
        "skipped": skipped_list(result.skipped),
        "ignored": result.ignored,
    }
