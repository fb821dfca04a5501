"""Runs the migrations: `DATABASE_URL=… alembic -c setup.cfg upgrade heads`.

The schemas `tasks` and `hub` are two branches, so `upgrade tasks@head` installs the queue alone.
A program may hand over the URL itself: `config.attributes["database_url"]`.
"""

from __future__ import annotations

import os

import sqlalchemy as sa
from alembic import context

LOCK_KEY = 7_031_871_905_213_044_110
"""Of the advisory lock that keeps two deploys from migrating at once."""


def database_url() -> sa.URL:
    """Return the URL to migrate, with the driver named.

    Raises RuntimeError when there is none.
    """
    text = context.config.attributes.get("database_url") or os.environ.get("DATABASE_URL")
    if not text:
        raise RuntimeError("DATABASE_URL is not set; it must be a URL such as postgresql://user@host/name")
    return sa.make_url(text).set(drivername="postgresql+psycopg")


def migrate_offline() -> None:
    """Print the SQL instead of running it."""
    context.configure(url=database_url(), literal_binds=True, version_table_schema="public")
    with context.begin_transaction():
        context.run_migrations()


def migrate_online() -> None:
    """Run each migration in a transaction of its own."""
    engine = sa.create_engine(database_url(), poolclass=sa.NullPool)
    with engine.connect() as connection:
        # A migration that cannot get its lock must give up, not queue everybody else up behind it.
        connection.execute(sa.text("SET lock_timeout = '4s'"))
        connection.execute(sa.text("SET statement_timeout = '60s'"))
        connection.commit()
        context.configure(connection=connection, version_table_schema="public", transaction_per_migration=True)
        with context.begin_transaction():
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_KEY})
            context.run_migrations()
    engine.dispose()


if context.is_offline_mode():
    migrate_offline()
else:
    migrate_online()
