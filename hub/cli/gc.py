"""`packhouse gc`: delete what nothing in the store names any more."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

import click

from hub.cli.database import as_json, explained

if TYPE_CHECKING:
    from hub.wire.context import Hub


@click.command()
@click.option("--dry-run", is_flag=True, help="Change nothing, only count.")
@as_json
def gc(*, dry_run: bool, as_json: bool) -> None:
    """Mark stored bytes that nothing names; delete those that were marked a day ago, and day-old uploads.

    Safe while pushes and clones are under way. Workers do the same after each push and once a day.
    """
    from hub.app import create_app  # Flask and the models: not for `--help`
    from hub.gc import collect

    services = cast("Hub", create_app().extensions["packhouse"]).services
    with explained():
        counts = collect(services, dry_run=dry_run).counts()
    if as_json:
        click.echo(json.dumps(counts))
        return
    deleted, marked = ("Would delete", "Would mark") if dry_run else ("Deleted", "Marked")
    click.echo(f"{deleted} {counts['deleted']} packs ({counts['deleted_bytes']:,} bytes), {counts['uploads']} uploads.")
    click.echo(f"{marked} {counts['marked']} packs, {counts['expired']} of them staged ones that no push has adopted.")
    if counts["unknown"]:
        click.echo(f"Left alone: {counts['unknown']} keys that are none of the hub's.")
    if counts["more"]:
        click.echo("There is more; run it again.")
