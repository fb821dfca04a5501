"""`packhouse log`: the history of a branch."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from hub.cli.client_options import Access, client_options, complete_branch, connected, reported, working_directory
from hub.client.api_answers import LogEntry
from hub.client.errors import printable
from hub.client.log import Log, local_log, remote_log


@click.command()
@click.argument("place", metavar="[DIR|URL]", default=".")
@click.option(
    "--branch",
    shell_complete=complete_branch,
    help="The branch; by default that of the directory, or the repository's own.",
)
@click.option("-n", "--limit", type=click.IntRange(1), default=20, show_default=True, help="How many commits at most.")
@client_options
def log(place: str, branch: str | None, limit: int, access: Access, *, as_json: bool, quiet: bool) -> None:
    """Show the newest commits of a branch.

    For a directory that was cloned or pushed, nothing is asked of the hub: what is shown is the history of its
    files, and of the other branches what the last fetch has brought. For a URL the hub is asked.

    Exit codes: 0 done; 1 refused, or no such branch; 2 wrong usage; 3 the hub cannot be reached.
    """
    loud = not quiet and not as_json
    with reported(as_json=as_json) as document:
        if "://" in place:
            with connected(place, access, loud=loud) as (remote, _):
                found = remote_log(remote, branch, limit)
        else:
            found = local_log(working_directory(Path(place)), branch, limit)
        document.update(branch=found.branch, whole=found.whole, commits=[asdict(entry) for entry in found.entries])
        if loud:
            _say(found)


def _say(found: Log) -> None:
    for entry in found.entries:
        _say_entry(entry)
    if not found.entries:
        click.echo("There is no commit yet.")
    elif not found.whole:
        click.echo("Older commits are not kept here: give the repository's address to see them.", err=True)


def _say_entry(entry: LogEntry) -> None:
    click.echo(f"commit {entry.commit_id}")
    if len(entry.parents) > 1:
        click.echo(f"Merge:  {' '.join(parent[:12] for parent in entry.parents)}")
    if entry.author:
        click.echo(f"Author: {printable(entry.author)}")
    click.echo(f"Date:   {printable(entry.committed_at)}\n")
    for line in entry.message.splitlines() or [""]:
        click.echo(f"    {printable(line)}".rstrip())
    click.echo()
