"""`packhouse ls-remote`: the branches of a repository on a hub."""

from __future__ import annotations

import click

from hub.cli.client_options import Access, client_options, connected, reported
from hub.client.errors import printable


@click.command("ls-remote")
@click.argument("url")
@client_options
def ls_remote(url: str, access: Access, *, as_json: bool, quiet: bool) -> None:
    """List the branches of the repository at URL, the default branch first.

    Prints one line for each: the commit, a tab, the name. With --quiet only the exit code tells whether the
    repository can be read.

    Exit codes: 0 done; 1 refused by the server; 2 wrong usage; 3 the hub cannot be reached.
    """
    with reported(as_json=as_json) as document:
        with connected(url, access, loud=not quiet and not as_json) as (remote, _):
            refs = remote.refs()
        document.update(
            url=remote.url,
            repo_id=refs.repo_id,
            default_branch=refs.default_branch,
            branch_heads=refs.branch_heads,
        )
        if not quiet and not as_json:
            for name, head in sorted(refs.branch_heads.items(), key=lambda item: item[0] != refs.default_branch):
                click.echo(f"{head}\t{printable(name)}")
