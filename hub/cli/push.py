"""`packhouse push`: the files of a directory as a commit on a branch of a hub."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from hub.cli.client_options import (
    Access,
    bytes_text,
    client_options,
    complete_branch,
    connected,
    count_text,
    reported,
    warn_skipped,
)
from hub.client import workdir
from hub.client.errors import BadInput
from hub.client.follow import await_prebuilt
from hub.client.muse_pushing import MusePushResult, push_muse
from hub.client.muse_store import MuseStore
from hub.client.pushing import PushResult, Wish, push_directory


@click.command()
@click.argument("places", metavar="[DIR] [URL]", nargs=-1)
@click.option("-m", "--message", help="What the commit says; required, but for a Muse working copy.")
@click.option("--branch", shell_complete=complete_branch, help="The branch to move; in a clone its own, else «main».")
@click.option("--author", default="", help="Who made the change; empty by default.")
@click.option("--force", is_flag=True, help="Replace a branch that has moved on since this clone was made.")
@click.option("--allow-empty", is_flag=True, help="Commit even when no file has changed.")
@click.option("--no-ignore", is_flag=True, help="Push also what .museignore and .gitignore name.")
@click.option("--plain", is_flag=True, help="In a Muse working copy: push its files as a commit of ours.")
@click.option("--wait/--no-wait", default=False, help="Wait until clones can have the push, at most 300 s.")
@client_options
def push(
    places: tuple[str, ...], message: str | None, branch: str | None, author: str, access: Access,
    *, force: bool, allow_empty: bool, no_ignore: bool, plain: bool, wait: bool, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Push the files of DIR to the repository at URL.

    DIR is the current directory when it is left out, URL the one that DIR was cloned from or pushed to
    before. Left out are .git, .muse and .packhouse, what .museignore and .gitignore name, and symbolic links,
    which are reported. Of a Muse working copy its own commits are pushed, without -m, to its remote «origin»
    when URL is left out.

    Exit codes: 0 done or up to date; 1 refused by the server, or a conflict; 2 wrong usage or an unreadable
    file; 3 the hub cannot be reached; 4 verification failed.
    """
    loud = not quiet and not as_json
    with reported(as_json=as_json) as document:
        directory, url = places_of(places, plain=plain)
        result: PushResult | MusePushResult
        if not plain and MuseStore.is_at(directory):
            if message is not None:
                raise BadInput("A Muse working copy brings its own commits: leave -m out, or add --plain.")
            with connected(url, access, loud=loud) as (remote, progress):
                result = push_muse(remote, directory, progress, branch=branch, force=force)
        else:
            if message is None:
                raise click.UsageError("Missing option «-m»: say what the commit is about.")
            wish = Wish(directory, message, branch, author, force=force, allow_empty=allow_empty, rules=not no_ignore)
            with workdir.locked(directory), connected(url, access, loud=loud) as (remote, progress):
                result = push_directory(remote, wish, progress)
        document.update(_document(result))
        if loud:
            _say(result)
        if wait and result.push_id is not None:
            with connected(url, access, loud=loud) as (remote, progress):
                document["status"] = await_prebuilt(remote, result.push_id, progress).status
            if loud:
                click.echo("Clones can have it now.")


def places_of(places: tuple[str, ...], *, plain: bool) -> tuple[Path, str]:
    """Read `[DIR] [URL]`: one argument with «://» in it is a URL. What is left out is looked up."""
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
        directory = next((place for place in (directory, *directory.parents) if _is_root(place)), directory)
    known = workdir.load(directory)
    url = MuseStore(directory).remote_url("origin") if MuseStore.is_at(directory) and not plain else None
    if url is not None:
        return directory, url
    if known is None:
        raise BadInput(
            "This directory was not cloned or pushed before: name the repository's address, "
            "packhouse push DIR URL -m MESSAGE."
        )
    return directory, known.url


def _is_root(place: Path) -> bool:
    return workdir.config_path(place).is_file() or MuseStore.is_at(place)


def _say(result: PushResult | MusePushResult) -> None:
    if isinstance(result, PushResult):
        warn_skipped(result.skipped)
        if result.note:
            click.echo(result.note, err=True)
    if result.up_to_date:
        click.echo("Everything up to date")
        return
    sent = f"{count_text(result.objects_sent, 'new object')}, {bytes_text(result.bytes_sent)}"
    what = (
        count_text(result.files, "file")
        if isinstance(result, PushResult)
        else count_text(result.commits_sent, "commit")
    )
    click.echo(f"{result.branch} is now {result.commit_id} ({what}; {sent})")


def _document(result: PushResult | MusePushResult) -> dict[str, Any]:
    document = asdict(result) | {"up_to_date": result.up_to_date}
    document.pop("note", None)
    return document
