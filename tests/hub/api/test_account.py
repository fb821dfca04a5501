"""Whose a token is, and what it is good for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from hub.accounts import create_token
from hub.auth import Right
from tests.hub.api.calls import call, good
from tests.hub.offers import refused
from tests.hub.views import rows
from tests.hub.world import MUSE_ACCEPT, World

pytestmark = pytest.mark.integration


def test_whoami_says_whose_the_token_is_and_what_it_may(world: World) -> None:
    assert good(call(world, "GET", "/whoami")) == {
        "name": "alice", "scopes": ["read", "write", "admin"], "expires_at": None, "label": "",
    }  # fmt: skip


def test_whoami_of_a_limited_token_says_its_limits(world: World) -> None:
    end = datetime.now(UTC) + timedelta(hours=1)
    with world.hub.services.sessions.begin() as session:
        _, token = create_token(session, "alice", label="laptop", expires_at=end, scope=Right.READ)
    said = good(call(world, "GET", "/whoami", token=token))
    assert said == {"name": "alice", "scopes": ["read"], "expires_at": end.isoformat(), "label": "laptop"}


def test_whoami_needs_a_token(world: World) -> None:
    refused(call(world, "GET", "/whoami", token=None), 401, "token")
    refused(call(world, "GET", "/whoami", token="ph_wrong"), 401)


def test_api_speaks_json_whatever_the_caller_accepts(world: World) -> None:
    headers = world.headers() | {"Accept": MUSE_ACCEPT}
    for path, sent in (("whoami", headers), ("whoami", {"Accept": MUSE_ACCEPT}), ("nothing", headers)):
        answer = world.client.get(f"/api/{path}", headers=sent)
        assert answer.mimetype == "application/json"
        assert answer.get_json()


def test_last_use_of_a_token_is_written_once_a_minute(world: World) -> None:
    def used() -> datetime | None:
        return rows(world, "SELECT used_at FROM hub.token")[0][0]  # type: ignore[no-any-return]

    assert used() is None
    good(call(world, "GET", "/whoami"))
    first = used()
    assert first is not None
    good(call(world, "GET", "/whoami"))
    assert used() == first
    with world.hub.services.sessions.begin() as session:
        session.execute(text("UPDATE hub.token SET used_at = used_at - interval '61 s'"))
    good(call(world, "GET", "/whoami"))
    now = used()
    assert now is not None
    assert now > first
