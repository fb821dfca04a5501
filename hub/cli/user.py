"""`packhouse user`: those who may use the hub."""

from __future__ import annotations

import json

import click
from sqlalchemy import select

from hub.accounts import create_principal
from hub.cli.database import as_json, show, transaction
from hub.models import Principal


@click.group()
def user() -> None:
    """Manage those who may use the hub."""


@user.command()
@click.argument("name")
@click.option("--superuser", is_flag=True, help="May do everything in every repository.")
@as_json
def create(name: str, *, superuser: bool, as_json: bool) -> None:
    """Create the user NAME: lower-case letters, digits and hyphens; the first part of their repositories' URLs."""
    with transaction() as session:
        principal = create_principal(session, name, is_superuser=superuser)
    made = {"name": principal.name, "principal_id": str(principal.principal_id), "is_superuser": superuser}
    click.echo(json.dumps(made) if as_json else f"User {name} created. Next: packhouse token create {name}")


@user.command("list")
@as_json
def list_(*, as_json: bool) -> None:
    """List the users."""
    with transaction() as session:
        principals = session.scalars(select(Principal).order_by(Principal.name)).all()
        rows = [
            {"name": item.name, "superuser": "yes" if item.is_superuser else "no", "created": item.created_at}
            for item in principals
        ]
    show(rows, as_json=as_json)
