"""The caller's own account."""

from __future__ import annotations

from flask import Blueprint, Response

from hub.auth import Right, require_token
from hub.wire.codec import answer
from hub.wire.context import asking

api = Blueprint("account", __name__, url_prefix="/api")


@api.get("/whoami")
def whoami() -> Response:
    """Whose the token is, and what it is good for."""
    caller = require_token(asking(), Right.READ, whole=False)
    return answer(
        {
            "name": caller.name,
            "scopes": [right.name.lower() for right in Right if Right.READ <= right <= caller.scope],
            "expires_at": caller.expires_at.isoformat() if caller.expires_at else None,
            "label": caller.label,
        }
    )
