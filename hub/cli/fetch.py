"""`packhouse fetch`: what the branches of the hub have gained."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from hub.cli.client_options import (
    Access,
    bytes_text,
    client_options,
    connected,
    count_text,
    reported,
    working_directory,
)
from hub.client import workdir
from hub.client.errors import printable
from hub.client.fetching import FetchResult
from hub.client.fetching import fetch as fetch_branches


@click.command()
@click.argument("directory", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
@client_options
def fetch(directory: Path, access: Access, *, as_json: bool, quiet: bool) -> None:
    """Bring the branches' new commits from the hub that DIR was cloned from or pushed to.

    They are kept in .packhouse, where `packhouse log --branch` shows them and `packhouse pull` takes them from.
    No file of the directory is touched.

    Exit codes: 0 done or up to date; 1 refused by the server; 2 wrong usage, or a damaged .packhouse; 3 the hub
    cannot be reached; 4 the bytes received are wrong.
    """
    loud = not quiet and not as_json
    with reported(as_json=as_json) as document:
        root = working_directory(directory)
        url = workdir.opened(root).url
        with workdir.locked(root), connected(url, access, loud=loud) as (remote, progress):
            result = fetch_branches(remote, root, progress)
        document.update(asdict(result))
        if loud:
            say_fetched(result)


def say_fetched(result: FetchResult) -> None:
    """Say which branches have moved."""
    for moved in result.moved:
        name = printable(moved.branch)
        if moved.after is None:
            click.echo(f"{name} is gone from the hub")
        else:
            was = "new" if moved.before is None else f"was {moved.before[:12]}"
            click.echo(f"{name} is at {moved.after} ({was})")
    if result.commits:
        click.echo(f"Received {count_text(result.commits, 'commit')}, {bytes_text(result.bytes_received)}.")
    if not result.moved:
        click.echo("Everything up to date")
