"""`packhouse repo`: repositories and who may use them."""

from __future__ import annotations

import json

import click
from sqlalchemy import select

from hub.accounts import create_repository, grant
from hub.cli.database import as_json, show, transaction
from hub.models import Principal, Repository


@click.group()
def repo() -> None:
    """Create and list repositories."""


@repo.command()
@click.argument("path", metavar="OWNER/SLUG")
@click.option("--private", is_flag=True, help="Only its owner and those with a role may read it.")
@as_json
def create(path: str, *, private: bool, as_json: bool) -> None:
    """Create the empty repository OWNER/SLUG. Everybody may read it, unless it is private."""
    with transaction() as session:
        repository = create_repository(session, path, private=private)
    made = {"path": path, "repository_id": str(repository.repository_id), "visibility": repository.visibility}
    click.echo(json.dumps(made) if as_json else f"Repository {path} created ({repository.visibility}).")


@repo.command("list")
@as_json
def list_(*, as_json: bool) -> None:
    """List all repositories."""
    with transaction() as session:
        found = session.execute(
            select(Principal.name, Repository)
            .join(Principal, Principal.principal_id == Repository.owner_id)
            .order_by(Principal.name, Repository.slug)
        )
        rows = [
            {
                "path": f"{owner}/{repository.slug}",
                "visibility": repository.visibility,
                "default branch": repository.default_branch,
                "created": repository.created_at,
            }
            for owner, repository in found
        ]
    show(rows, as_json=as_json)


@repo.command("grant")
@click.argument("path", metavar="OWNER/SLUG")
@click.argument("name")
@click.argument("role", type=click.Choice(["read", "write", "admin"]))
def grant_(path: str, name: str, role: str) -> None:
    """Give the user NAME a role in OWNER/SLUG, in place of the one they have."""
    with transaction() as session:
        grant(session, path, name, role)
    click.echo(f"{name} may {role} in {path}.")


@repo.command()
@click.argument("path", metavar="OWNER/SLUG")
@click.argument("name")
def revoke(path: str, name: str) -> None:
    """Take away the role of the user NAME in OWNER/SLUG."""
    with transaction() as session:
        grant(session, path, name, None)
    click.echo(f"{name} has no role in {path} any more.")
