"""`packhouse migrate`: the release step."""

from __future__ import annotations

from pathlib import Path

import click

from hub.settings import SettingsError, environment

ROOT = Path(__file__).parents[2]


def upgrade(database_url: str) -> None:
    """Run every migration that the database lacks, one transaction each. Raises what Alembic and psycopg
    raise.
    """
    from alembic import command
    from alembic.config import Config

    config = Config(ROOT / "setup.cfg")
    config.set_main_option("script_location", str(ROOT / "migrations"))
    config.attributes["database_url"] = database_url
    command.upgrade(config, "heads")


@click.command()
def migrate() -> None:
    """Bring the database named by DATABASE_URL to the newest schema. Repeating it is harmless."""
    from sqlalchemy.exc import DBAPIError

    from hub.cli.database import NO_ANSWER, fail

    database_url = environment().get("DATABASE_URL")
    if not database_url:
        raise SettingsError("DATABASE_URL must be set (see README, «Settings»)")
    try:
        upgrade(database_url)
    except DBAPIError as error:
        # Only what the server itself has said has an SQLSTATE; a connection that failed has none.
        if getattr(error.orig, "sqlstate", None) is None:
            fail(NO_ANSWER)
        reason = str(error.orig).splitlines()[0]
        fail(f"The database refused a migration, which was undone; those before it are in place: {reason}")
    click.echo("The database has the newest schema.")
