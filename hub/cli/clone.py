"""`packhouse clone`: a repository of a hub as a directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hub.cli.client_options import (
    Access,
    bytes_text,
    client_options,
    connected,
    count_text,
    reported,
    skipped_list,
    warn_skipped,
)
from hub.client.cloning import CloneResult
from hub.client.cloning import clone as clone_repository


@click.command()
@click.argument("url")
@click.argument("directory", required=False, metavar="[DIR]", type=click.Path(path_type=Path))
@click.option("--branch", help="The branch whose files are written; by default the repository's own.")
@click.option("--force", is_flag=True, help="Add to a directory that has content; no file there is changed.")
@click.option(
    "--wait",
    "wait_seconds",
    type=click.FloatRange(min=0, max=86400),
    default=300,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for a pack that the hub is still making.",
)
@client_options
def clone(
    url: str, directory: Path | None, branch: str | None, wait_seconds: float, access: Access,
    *, force: bool, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Clone the repository at URL into DIR, by default a new directory named like the repository.

    Every object, snapshot and commit is verified before a file is written. The token for a private repository
    is the one of `packhouse login`, or the environment variable PACKHOUSE_TOKEN.

    Exit codes: 0 done; 1 refused by the server, or a conflict with what is in DIR; 2 wrong usage; 3 the hub
    cannot be reached; 4 the bytes received are wrong.
    """
    loud = not quiet and not as_json
    with reported(as_json=as_json) as document:
        with connected(url, access, loud=loud, wait_seconds=wait_seconds) as (remote, progress):
            target = directory or Path(remote.slug)
            result = clone_repository(remote, target, progress, branch=branch, force=force)
        document.update(_document(result))
        if loud:
            _say(result)


def _say(result: CloneResult) -> None:
    warn_skipped(result.skipped)
    if result.head is None:
        click.echo(f"{result.directory} is a clone of an empty repository")
        return
    history = f"{count_text(result.commits, 'commit')}, {bytes_text(result.bytes_received)}"
    click.echo(
        f"{result.directory} has {count_text(result.files, 'file')} of {result.branch} at {result.head} ({history})"
    )


def _document(result: CloneResult) -> dict[str, Any]:
    return {
        "url": result.url,
        "directory": str(result.directory),
        "branch": result.branch,
        "head": result.head,
        "snapshot_id": result.snapshot_id,
        "mpack_id": result.mpack_id,
        "branches": result.branches,
        "commits": result.commits,
        "files": result.files,
        "bytes_received": result.bytes_received,
        "skipped": skipped_list(result.skipped),
    }
