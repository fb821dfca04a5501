"""The audit log: what is in it, and that it can only grow."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import ProgrammingError

from hub.accounts import create_token, grant, revoke_token
from hub.audit import read_audit
from tests.hub.offers import refused
from tests.hub.racing import pushed
from tests.hub.world import History, World

pytestmark = pytest.mark.integration


def log(world: World, *actions: str) -> list[dict[str, Any]]:
    """The world's repository's entries of these actions, oldest first."""
    with world.hub.services.sessions() as session:
        entries = read_audit(session, world.repository_id).entries
    return [item for item in reversed(entries) if not actions or item["action"] in actions]


def pick(entry: dict[str, Any], *keys: str) -> tuple[Any, ...]:
    return tuple(entry[key] for key in keys)


@pytest.mark.parametrize("transport", ["mpack", "muse"])
def test_push_is_logged_with_who_where_from_and_both_heads(world: World, history: History, transport: str) -> None:
    first, second = history.line(2)
    push = world.push_mpack if transport == "mpack" else world.push_muse
    pushed(push(history, first))
    pushed(push(history, second))
    entries = log(world, "push")
    assert [pick(item, "name", "branch", "old_head", "new_head", "force", "via", "address") for item in entries] == [
        ("alice", "main", None, first, False, transport, "127.0.0.1"),
        ("alice", "main", first, second, False, transport, "127.0.0.1"),
    ]
    with world.hub.services.sessions() as session:
        assert session.execute(text("SELECT count(*) FROM hub.push WHERE push_id = ANY(:ids)"),
                               {"ids": [item["push_id"] for item in entries]}).scalar_one() == 2  # fmt: skip


def test_forced_push_is_logged_with_the_head_that_it_overwrote(world: World, history: History) -> None:
    first = history.line(1)[0]
    other = history.commit({"f": b"other"})
    pushed(world.push_mpack(history, first))
    refused(world.push_muse(history, other), 409)
    pushed(world.push_muse(history, other, force=True))
    assert [pick(item, "old_head", "new_head", "force") for item in log(world, "push")] == [
        (None, first, False), (first, other, True)
    ]  # fmt: skip


def test_repeat_of_a_push_is_logged_once(world: World, history: History) -> None:
    tip = history.line(1)[0]
    for _ in range(2):
        pushed(world.push_muse(history, tip))
        pushed(world.push_mpack(history, tip))
    assert len(log(world, "push")) == 1


def test_forced_push_that_is_refused_is_logged_and_others_are_not(world: World, history: History) -> None:
    first = history.line(1)[0]
    other = history.commit({"f": b"other"})
    pushed(world.push_mpack(history, first))
    refused(world.push_mpack(history, other, expected_head=other[::-1]), 409)
    assert log(world, "push.refused") == []
    refused(world.push_mpack(history, other, force=True, expected_head=other[::-1]), 409)
    (entry,) = log(world, "push.refused")
    assert pick(entry, "name", "branch", "new_head", "error") == ("alice", "main", other, "DIVERGED")
    assert world.heads() == {"main": first}


def test_token_label_stands_in_the_log_but_no_token(world: World, history: History) -> None:
    with world.hub.services.sessions.begin() as session:
        token_id, token = create_token(session, "alice", label="laptop")
    pushed(world.push_muse(history, history.line(1)[0], token=token))
    (entry,) = log(world, "push")
    assert pick(entry, "token_id", "token_label") == (str(token_id), "laptop")
    with world.hub.services.sessions.begin() as session:
        revoke_token(session, token_id)
        everything = str(session.execute(text("SELECT audit::text FROM hub.audit ORDER BY audit_id")).all())
    assert "token.create" in everything
    assert "token.revoke" in everything
    assert token not in everything


def test_what_the_operator_does_is_logged(world: World) -> None:
    world.user("bob")
    with world.hub.services.sessions.begin() as session:
        grant(session, "alice/data", "bob", "read")
        grant(session, "alice/data", "bob", "write")
        grant(session, "alice/data", "bob", None)
    assert [pick(item, "name", "via", "action") for item in log(world)] == [
        ("operator", "cli", "repository.create"), ("operator", "cli", "collaborator.set"),
        ("operator", "cli", "collaborator.set"), ("operator", "cli", "collaborator.remove"),
    ]  # fmt: skip
    changes = log(world, "collaborator.set", "collaborator.remove")
    assert [pick(item, "collaborator", "old_role") for item in changes] == [
        ("bob", None), ("bob", "read"), ("bob", "write")
    ]  # fmt: skip


@pytest.mark.parametrize(
    "statement", ["UPDATE hub.audit SET name = 'x'", "DELETE FROM hub.audit WHERE false", "TRUNCATE hub.audit"]
)
def test_log_can_only_grow(world: World, statement: str) -> None:
    with world.hub.services.sessions() as session, pytest.raises(ProgrammingError, match="can only grow"):
        session.execute(text(statement))


def test_entry_goes_with_what_it_tells_of(world: World, history: History) -> None:
    """A push that breaks off leaves no entry."""
    tip = history.line(1)[0]
    from tests.hub.racing import before_commit_of_a_push

    def fail(_: object) -> None:
        raise RuntimeError("the push breaks off")

    with before_commit_of_a_push(world, fail):
        assert world.push_mpack(history, tip).status_code == 500
    assert log(world, "push") == []
