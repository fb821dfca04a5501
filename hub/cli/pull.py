"""`packhouse pull`: the files of a working directory brought to what the hub has."""

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
from hub.client.pulling import PullResult
from hub.client.pulling import pull as pull_branch


@click.command()
@click.argument("directory", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Follow a branch that was replaced; no change of yours is overwritten.")
@client_options
def pull(directory: Path, access: Access, *, force: bool, as_json: bool, quiet: bool) -> None:
    """Bring the files of DIR to the newest commit of its branch.

    Only what is new is fetched. A file that was changed, added or deleted here and that the update would touch
    stops it before anything is changed; all such files are named. Other files stay as they are. A pull that was
    interrupted is finished by the next one.

    Exit codes: 0 done or up to date; 1 refused by the server, or a conflict with changes made here; 2 wrong
    usage, or an unreadable file; 3 the hub cannot be reached; 4 the bytes received are wrong.
    """
    loud = not quiet and not as_json
    with reported(as_json=as_json) as document:
        root = working_directory(directory)
        url = workdir.opened(root).url
        with workdir.locked(root), connected(url, access, loud=loud) as (remote, progress):
            result = pull_branch(remote, root, progress, force=force)
        document.update(asdict(result), up_to_date=result.up_to_date)
        if loud:
            _say(result)


def _say(result: PullResult) -> None:
    if result.up_to_date:
        click.echo("Everything up to date")
        return
    done = f"{count_text(result.written, 'file')} written, {result.deleted:,} deleted"
    fetched = result.fetched
    received = f"{count_text(fetched.commits, 'commit')}, {bytes_text(fetched.bytes_received)} received"
    click.echo(f"{printable(result.branch)} is now {result.head} ({done}; {received})")
