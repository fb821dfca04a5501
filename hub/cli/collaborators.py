"""`packhouse repo collaborators`: who may use a repository besides its owner."""

from __future__ import annotations

import click

from hub.accounts import grant, list_collaborators
from hub.auth import ROLES
from hub.cli.database import as_json, repository_at, show, transaction


@click.group()
def collaborators() -> None:
    """Say who may use a repository besides its owner."""


@collaborators.command("list")
@click.argument("path", metavar="OWNER/SLUG")
@as_json
def list_(path: str, *, as_json: bool) -> None:
    """List those who have a role in OWNER/SLUG."""
    with transaction() as session:
        found = list_collaborators(session, repository_at(session, path))
    show([{"name": name, "role": role} for name, role in found], as_json=as_json)


@collaborators.command("set")
@click.argument("path", metavar="OWNER/SLUG")
@click.argument("name")
@click.argument("role", type=click.Choice(ROLES))
def set_(path: str, name: str, role: str) -> None:
    """Give the user NAME a role in OWNER/SLUG, in place of the one they have."""
    with transaction() as session:
        grant(session, path, name, role)
    click.echo(f"{name} may {role} in {path}.")


@collaborators.command()
@click.argument("path", metavar="OWNER/SLUG")
@click.argument("name")
def remove(path: str, name: str) -> None:
    """Take away the role of the user NAME in OWNER/SLUG."""
    with transaction() as session:
        grant(session, path, name, None)
    click.echo(f"{name} has no role in {path} any more.")
