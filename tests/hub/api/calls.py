"""Calls of the JSON API."""

from __future__ import annotations

from typing import Any

from werkzeug.test import TestResponse

from tests.hub.world import World


def call(
    world: World, method: str, path: str, json: Any = None, *, token: str | None = "", **options: Any
) -> TestResponse:
    """`path` below /api; `token` "": alice's, None: none."""
    if json is not None:
        options["json"] = json
    return world.client.open(f"/api{path}", method=method, headers=world.headers(token), **options)


def good(answer: TestResponse, status: int = 200) -> dict[str, Any]:
    """What a call came to that must succeed."""
    assert answer.status_code == status, answer.data
    assert answer.mimetype == "application/json"
    return dict(answer.get_json())
