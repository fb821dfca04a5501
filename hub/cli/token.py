"""`packhouse token`: API tokens. A token's text is shown once."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from uuid import UUID

import click

from hub.accounts import create_token, find_principal, list_tokens, revoke_token
from hub.auth import ROLES, Right
from hub.cli.database import as_json, repository_at, show, transaction


class Duration(click.ParamType[timedelta]):
    """A length of time: a whole number and d, h or m."""

    name = "duration"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """The time that is written."""
        found = re.fullmatch(r"([1-9][0-9]{0,4})([dhm])", value)
        if found is None:
            self.fail("must be a whole number and d, h or m, e.g. 90d", param, ctx)
        return timedelta(**{{"d": "days", "h": "hours", "m": "minutes"}[found[2]]: int(found[1])})


@click.group()
def token() -> None:
    """Create and revoke API tokens."""


@token.command()
@click.argument("name")
@click.option("--label", default="", help="What the token is for, e.g. the machine it lies on.")
@click.option("--scope", type=click.Choice(ROLES), default="write", show_default=True, help="The most it may do.")
@click.option("--repo", "path", metavar="OWNER/SLUG", help="The only repository that it is for.")
@click.option("--expires", type=Duration(), help="Expire after e.g. 90d, 12h or 30m; never without it.")
@as_json
def create(name: str, label: str, scope: str, path: str | None, expires: timedelta | None, *, as_json: bool) -> None:
    """Create a token of the user NAME and print it, the only time that it can be seen."""
    expires_at = datetime.now(UTC) + expires if expires is not None else None
    with transaction() as session:
        token_id, text = create_token(
            session,
            name,
            label=label,
            expires_at=expires_at,
            scope=Right.named(scope),
            repository_id=repository_at(session, path) if path else None,
        )
    if as_json:
        click.echo(json.dumps({"token_id": str(token_id), "token": text, "expires_at": expires_at}, default=str))
        return
    click.echo(f"Token {token_id} of {name}; keep it, it is not shown again:", err=True)
    click.echo(text)


@token.command("list")
@click.argument("name")
@as_json
def list_(name: str, *, as_json: bool) -> None:
    """List the tokens of the user NAME, not their texts."""
    with transaction() as session:
        found = list_tokens(session, find_principal(session, name).principal_id)
    rows = [{**item, "scope": item["scope"].name.lower()} for item in found]
    show(rows, as_json=as_json)


@token.command()
@click.argument("token_id", type=click.UUID)
def revoke(token_id: UUID) -> None:
    """End the token TOKEN_ID at once."""
    with transaction() as session:
        revoke_token(session, token_id)
    click.echo(f"Token {token_id} is revoked.")
