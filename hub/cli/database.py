"""What the operator's commands share: one transaction, and the hub's errors as sentences with an exit status."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import click
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError, ProgrammingError
from sqlalchemy.orm import Session

from hub.accounts import split_path
from hub.errors import HubError, Missing
from hub.models.base import driver_url
from hub.models.repository import find_repository
from hub.settings import SettingsError, environment
from storage import StorageError
from tasks.render import print_table

NO_ANSWER = "The database does not answer; is DATABASE_URL right, and the server up?"

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


@contextmanager
def explained() -> Iterator[None]:
    """End the program with a sentence and status 1 for what the hub refuses, or a server it needs fails at."""
    try:
        yield
    except HubError as error:
        fail(error.sentence)
    except StorageError as error:
        fail(f"The object store does not do its part: {error}")
    except OperationalError:
        fail(NO_ANSWER)
    except ProgrammingError:
        fail("The database lacks the hub's tables; run `packhouse migrate`.")


@contextmanager
def transaction() -> Iterator[Session]:
    """One transaction in the database named by DATABASE_URL; errors as in `explained`."""
    database_url = environment().get("DATABASE_URL")
    if not database_url:
        raise SettingsError("DATABASE_URL must be set (see README, «Settings»)")
    engine = create_engine(driver_url(database_url))
    try:
        with explained(), Session(engine, expire_on_commit=False) as session, session.begin():
            yield session
    finally:
        engine.dispose()


def repository_at(session: Session, path: str) -> UUID:
    """The id of the repository OWNER/SLUG. Raises Invalid and Missing."""
    repository = find_repository(session, *split_path(path))
    if repository is None:
        raise Missing(f"There is no repository {path}.")
    return repository.repository_id


def fail(sentence: str) -> None:
    """End the program with status 1."""
    click.echo(f"Error: {sentence}", err=True)
    sys.exit(1)


def show(rows: Sequence[dict[str, Any]], *, as_json: bool) -> None:
    """Print the rows: a JSON list for programs, a table for people."""
    if as_json:
        click.echo(json.dumps(list(rows), default=str))
        return
    if not rows:
        click.echo("None.", err=True)
        return
    print_table(rows)
