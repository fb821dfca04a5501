"""`packhouse repo collaborators`: who may use a repository besides its owner."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click

from hub.accounts import grant, list_collaborators
from hub.auth import ROLES
from hub.cli.client_options import Access, client_options, reported
from hub.cli.database import repository_at, show, transaction
from hub.cli.repo_remote import asked
from hub.client.errors import printable

place = click.argument("place", metavar="OWNER/SLUG|URL")


@click.group()
def collaborators() -> None:
    """Say who may use a repository besides its owner.

    A URL, https://HUB/OWNER/SLUG, is asked of that hub, with the token of `packhouse login` or PACKHOUSE_TOKEN.
    OWNER/SLUG is for the operator, who has the hub's DATABASE_URL.
    """


@collaborators.command("list")
@place
@client_options
def list_(place: str, access: Access, *, as_json: bool, quiet: bool) -> None:
    """List those who have a role in a repository."""
    if "://" not in place:
        with transaction() as session:
            found = list_collaborators(session, repository_at(session, place))
        show([{"name": name, "role": role} for name, role in found], as_json=as_json)
        return
    with reported(as_json=as_json) as document:
        with asked(place, access) as (api, address):
            rows = [asdict(each) for each in api.collaborators(address)]
        document["collaborators"] = rows
        if not as_json and not quiet:
            show(rows, as_json=False)


@collaborators.command("set")
@place
@click.argument("name")
@click.argument("role", metavar="|".join(ROLES), type=click.Choice(ROLES))
@client_options
def set_(place: str, name: str, role: str, access: Access, *, as_json: bool, quiet: bool) -> None:
    """Give the user NAME a role in a repository, in place of the one they have."""
    _change(place, name, role, access, as_json=as_json)
    if not as_json and not quiet:
        click.echo(printable(f"{name} may {role} in {place}."))


@collaborators.command()
@place
@click.argument("name")
@client_options
def remove(place: str, name: str, access: Access, *, as_json: bool, quiet: bool) -> None:
    """Take away the role of the user NAME in a repository."""
    _change(place, name, None, access, as_json=as_json)
    if not as_json and not quiet:
        click.echo(printable(f"{name} has no role in {place} any more."))


def _change(place: str, name: str, role: str | None, access: Access, *, as_json: bool) -> None:
    """Give a role, or take it away (None)."""
    said: dict[str, Any] = {"name": name, "role": role}
    if "://" not in place:
        with transaction() as session:
            grant(session, place, name, role)
        if as_json:
            click.echo(json.dumps(said))
        return
    with reported(as_json=as_json) as document:
        with asked(place, access) as (api, address):
            if role is None:
                api.remove_collaborator(address, name)
            else:
                api.set_collaborator(address, name, role)
        document.update(said)
