"""`packhouse repo`: repositories, who may use them, and what was done to them."""

from __future__ import annotations

import json
from dataclasses import asdict

import click
from sqlalchemy import select

from hub.accounts import create_repository
from hub.audit import read_audit
from hub.cli.client_options import Access, client_options, reported
from hub.cli.collaborators import collaborators
from hub.cli.database import as_json, repository_at, show, transaction
from hub.cli.repo_remote import asked, list_remote, visibility
from hub.cli.repo_remote import show as show_remote
from hub.models import Principal, Repository
from hub.repositories import delete_repository, restore_repository


@click.group()
def repo() -> None:
    """Create, list and delete repositories; say who may use them, and what was done to them."""


repo.add_command(collaborators)
repo.add_command(show_remote)
repo.add_command(visibility)


@repo.command()
@click.argument("place", metavar="OWNER/SLUG|URL")
@click.option("--private", is_flag=True, help="Only its owner and those with a role may read it.")
@click.option("--default-branch", help="The branch that clones get; by default the first one pushed.")
@click.option("--domain", help="What kind of content it holds, for the Muse client; by default «code».")
@client_options
def create(
    place: str, access: Access, default_branch: str | None, domain: str | None,
    *, private: bool, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Create an empty repository. Everybody may read it, unless it is private.

    A URL, https://HUB/OWNER/SLUG, is asked of that hub, with the token of `packhouse login` or PACKHOUSE_TOKEN.
    OWNER/SLUG is for the operator, who has the hub's DATABASE_URL.
    """
    visibility = "private" if private else "public"
    if "://" not in place:
        with transaction() as session:
            repository = create_repository(
                session, place, private=private, default_branch=default_branch, domain=domain or "code"
            )
        made = {"path": place, "repository_id": str(repository.repository_id), "visibility": visibility}
        if as_json:
            click.echo(json.dumps(made))
    else:
        with reported(as_json=as_json) as document:
            with asked(place, access) as (api, address):
                info = api.create_repository(address, visibility, default_branch=default_branch, domain=domain)
            document.update(asdict(info))
    if not as_json and not quiet:
        click.echo(f"Repository {place} created ({visibility}).")


@repo.command("list")
@click.argument("url", required=False)
@client_options
def list_(url: str | None, access: Access, *, as_json: bool, quiet: bool) -> None:
    """List the repositories that one may read on the hub at URL; without it, for the operator, all of them.

    Exit codes: 0 done; 1 refused by the server; 2 wrong usage; 3 the hub cannot be reached.
    """
    if url is not None:
        list_remote(url, access, as_json=as_json, quiet=quiet)
        return
    with transaction() as session:
        found = session.execute(
            select(Principal.name, Repository)
            .join(Principal, Principal.principal_id == Repository.owner_id)
            .where(Repository.deleted_at.is_(None))
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


@repo.command()
@click.argument("path", metavar="OWNER/SLUG")
def delete(path: str) -> None:
    """Take OWNER/SLUG away from everybody. It keeps all that was pushed: `packhouse repo restore` brings it back."""
    with transaction() as session:
        delete_repository(session, repository_at(session, path))
    click.echo(f"Repository {path} is deleted. To have it back: packhouse repo restore {path}")


@repo.command()
@click.argument("path", metavar="OWNER/SLUG")
def restore(path: str) -> None:
    """Bring back the repository that was deleted last at OWNER/SLUG."""
    with transaction() as session:
        restore_repository(session, path)
    click.echo(f"Repository {path} is back.")


@repo.command()
@click.argument("path", metavar="[OWNER/SLUG]", required=False)
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="So many entries.")
@as_json
def audit(path: str | None, limit: int, *, as_json: bool) -> None:
    """Show what was done to OWNER/SLUG, newest first: pushes, roles, visibility. Without it: in the whole hub."""
    with transaction() as session:
        page = read_audit(session, repository_at(session, path) if path else None, limit=limit)
    if as_json:
        show(page.entries, as_json=True)
        return
    rows = []
    for entry in page.entries:
        common = {key: entry.pop(key) for key in ("happened_at", "name", "action")}
        more = " ".join(f"{key}={value}" for key, value in entry.items() if value not in (None, ""))
        rows.append({**common, "more": more})
    show(rows, as_json=False)
