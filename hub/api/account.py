"""The caller's own account: whose the token is, and the tokens there are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from flask import Blueprint, Response, request

from hub.accounts import create_token, list_tokens, revoke_token, split_path
from hub.api.reading import page_limit, read_object, take_words
from hub.auth import ROLES, Right, open_repository, require_token
from hub.errors import Invalid
from hub.wire.codec import answer, take_count
from hub.wire.context import asking, hub

api = Blueprint("account", __name__, url_prefix="/api")
EXPIRES_MAX = 10 * 365 * 86_400


@api.get("/whoami")
def whoami() -> Response:
    """Whose the token is, and what it is good for."""
    caller = require_token(asking(), Right.READ, whole=False)
    return answer(
        {
            "name": caller.name,
            "scopes": scopes(caller.scope),
            "expires_at": caller.expires_at.isoformat() if caller.expires_at else None,
            "label": caller.label,
        }
    )


@api.get("/tokens")
def tokens() -> Response:
    """The caller's tokens, newest first, the ended ones too; never their texts."""
    caller = require_token(asking(), Right.ADMIN)
    after, limit = request.args.get("after"), page_limit()
    with hub().services.sessions() as session:
        found = list_tokens(session, caller.principal_id, after=_read_after(after), limit=limit + 1)
    return answer(
        {
            "tokens": [{**token, "scopes": scopes(token.pop("scope"))} for token in found[:limit]],
            "next": found[limit - 1]["token_id"] if len(found) > limit else None,
        }
    )


@api.post("/tokens")
def create() -> Response:
    """A new token of the caller's. Its text is in this answer, and nowhere else ever."""
    caller = require_token(asking(), Right.ADMIN)
    data = read_object("label", "scopes", "expires_in", "repository")
    label, scope, expires_at = take_words(data, "label", ""), _take_scope(data), _take_end(data)
    path = take_words(data, "repository", "")
    with hub().services.sessions.begin() as session:
        only = open_repository(session, caller, *split_path(path), Right.READ).repository_id if path else None
        token_id, text = create_token(
            session, caller.name, label=label, scope=scope, expires_at=expires_at, repository_id=only, by=caller
        )
    said = {
        "token_id": str(token_id),
        "token": text,
        "label": label,
        "scopes": scopes(scope),
        "repository": path or None,
        "expires_at": expires_at.isoformat() if expires_at else None,
    }
    return answer(said, 201)


@api.delete("/tokens/<uuid:token_id>")
def revoke(token_id: UUID) -> Response:
    """End one of the caller's tokens at once."""
    caller = require_token(asking(), Right.ADMIN)
    with hub().services.sessions.begin() as session:
        revoke_token(session, token_id, by=caller)
    return answer({"revoked": str(token_id)})


def scopes(scope: Right) -> list[str]:
    """The scopes that a token has: its greatest one and those that it includes."""
    return list(ROLES[:scope])


def _take_scope(data: dict[str, Any]) -> Right:
    value = data.get("scopes")
    if not isinstance(value, list) or not value or not all(item in ROLES for item in value):
        raise Invalid("scopes", f"must be a list of at least one of {', '.join(ROLES)}.")
    return max(Right.named(item) for item in value)


def _take_end(data: dict[str, Any]) -> datetime | None:
    if data.get("expires_in") is None:
        return None
    seconds = take_count(data, "expires_in")
    if seconds > EXPIRES_MAX:
        raise Invalid("expires_in", f"must be at most {EXPIRES_MAX} seconds.")
    return datetime.now(UTC) + timedelta(seconds=seconds)


def _read_after(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        raise Invalid("after", "must be the `next` of another page.") from None
