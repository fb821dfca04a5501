"""`packhouse token`: API tokens. A token's text is shown once."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from uuid import UUID

import click
from sqlalchemy import select

from hub.accounts import create_token, find_principal, revoke_token
from hub.cli.database import as_json, show, transaction
from hub.models import Token


@click.group()
def token() -> None:
    """Create and revoke API tokens."""


@token.command()
@click.argument("name")
@click.option("--label", default="", help="What the token is for, e.g. the machine it lies on.")
@click.option("--days", type=click.IntRange(1, 3650), help="Expire after so many days; never without it.")
@as_json
def create(name: str, label: str, days: int | None, *, as_json: bool) -> None:
    """Create a token of the user NAME and print it, the only time that it can be seen."""
    expires_at = datetime.now(UTC) + timedelta(days=days) if days is not None else None
    with transaction() as session:
        token_id, text = create_token(session, name, label=label, expires_at=expires_at)
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
        principal = find_principal(session, name)
        found = session.scalars(
            select(Token).where(Token.principal_id == principal.principal_id).order_by(Token.created_at)
        ).all()
        rows = [
            {
                "token_id": item.token_id,
                "label": item.label,
                "created": item.created_at,
                "expires": item.expires_at,
                "revoked": item.revoked_at,
            }
            for item in found
        ]
    show(rows, as_json=as_json)


@token.command()
@click.argument("token_id", type=click.UUID)
def revoke(token_id: UUID) -> None:
    """End the token TOKEN_ID at once."""
    with transaction() as session:
        revoke_token(session, token_id)
    click.echo(f"Token {token_id} is revoked.")
