"""What an operator does: users, tokens, repositories and roles; from Python and from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from hub.accounts import create_principal, create_repository, create_token, grant, revoke_token, split_path
from hub.auth import Right, authenticate, open_repository
from hub.cli import packhouse
from hub.errors import Conflict, Forbidden, Invalid, Missing, Unauthenticated
from hub.models.base import driver_url
from hub.settings import SettingsError

pytestmark = pytest.mark.integration

Run = Callable[..., Result]


@pytest.fixture
def session(database_url: str) -> Any:
    """A session whose work is rolled back."""
    engine = create_engine(driver_url(database_url))
    with Session(engine) as session:
        yield session
        session.rollback()
    engine.dispose()


class TestAccounts:
    @pytest.mark.parametrize("name", ["", "A", "alice smith", "-a", "a-", "a_b", "a/b", "x" * 40, "api", "health", "é"])
    def test_bad_user_name_is_refused(self, session: Session, name: str) -> None:
        with pytest.raises(Invalid) as caught:
            create_principal(session, name)
        assert caught.value.field == "name"

    @pytest.mark.parametrize("name", ["a", "a1", "a-b", "x" * 39, "0"])
    def test_good_user_name_is_taken_once(self, session: Session, name: str) -> None:
        create_principal(session, name)
        with pytest.raises(Conflict, match=name):
            create_principal(session, name)

    @pytest.mark.parametrize(
        "path",
        ["", "data", "alice/", "/data", "alice/Data", "alice/a/b", "alice/.a", "alice/a..b", "alice/a b", "a\0/b"],
    )
    def test_bad_repository_path_is_refused(self, path: str) -> None:
        with pytest.raises(Invalid, match="OWNER/SLUG"):
            split_path(path)

    def test_repository_is_made_once_and_needs_an_owner(self, session: Session) -> None:
        create_principal(session, "alice")
        create_repository(session, "alice/data.v1_2-x")
        with pytest.raises(Conflict):
            create_repository(session, "alice/data.v1_2-x")
        with pytest.raises(Missing, match="bob"):
            create_repository(session, "bob/data")

    def test_token_is_its_users(self, session: Session) -> None:
        create_principal(session, "alice")
        token_id, text = create_token(session, "alice")
        caller = authenticate(session, f"Bearer {text}")
        assert caller is not None
        assert caller.name == "alice"
        revoke_token(session, token_id)
        revoke_token(session, token_id)
        with pytest.raises(Unauthenticated):
            authenticate(session, f"Bearer {text}")

    def test_tokens_differ_and_one_ends_alone(self, session: Session) -> None:
        create_principal(session, "alice")
        (first, one), (_, other) = create_token(session, "alice"), create_token(session, "alice")
        assert one != other
        assert min(len(one), len(other)) >= 40
        revoke_token(session, first)
        assert authenticate(session, f"bearer  {other} ") is not None

    def test_roles_are_given_changed_and_taken_away(self, session: Session) -> None:
        for name in ("alice", "bob"):
            create_principal(session, name)
        create_repository(session, "alice/data", private=True)
        bob = authenticate(session, f"Bearer {create_token(session, 'bob')[1]}")

        def rights() -> list[Right]:
            found = []
            for right in (Right.READ, Right.WRITE, Right.ADMIN):
                try:
                    open_repository(session, bob, "alice", "data", right)
                except (Forbidden, Missing):
                    continue
                found.append(right)
            return found

        assert rights() == []
        for role, expected in (("read", 1), ("admin", 3), ("write", 2), (None, 0)):
            grant(session, "alice/data", "bob", role)
            assert len(rights()) == expected
        with pytest.raises(Missing, match="no role"):
            grant(session, "alice/data", "bob", None)


@pytest.mark.usefixtures("committed_db")
class TestCommands:
    """Each command's effect, its output for people and programs, and its exit status."""

    @pytest.fixture
    def run(self, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Run:
        monkeypatch.setenv("DATABASE_URL", database_url)
        runner = CliRunner()
        return lambda *words: runner.invoke(packhouse, list(words))

    def test_user_token_and_repository_are_made_and_listed(self, run: Run) -> None:
        assert "token create alice" in run("user", "create", "alice").stdout
        made = json.loads(run("user", "create", "root", "--superuser", "--json").stdout)
        assert (made["name"], made["is_superuser"]) == ("root", True)
        listed = json.loads(run("user", "list", "--json").stdout)
        assert [(row["name"], row["superuser"]) for row in listed] == [("alice", "no"), ("root", "yes")]
        assert run("repo", "create", "alice/data").exit_code == 0
        assert (
            json.loads(run("repo", "create", "alice/secret", "--private", "--json").stdout)["visibility"] == "private"
        )
        listed = json.loads(run("repo", "list", "--json").stdout)
        assert [(row["path"], row["visibility"]) for row in listed] == [
            ("alice/data", "public"), ("alice/secret", "private")
        ]  # fmt: skip

    def test_token_is_the_only_thing_on_standard_output(self, run: Run, session: Session) -> None:
        """So that a shell can take it."""
        run("user", "create", "alice")
        result = run("token", "create", "alice", "--label", "laptop")
        token = result.stdout.strip()
        assert "not shown again" in result.stderr
        caller = authenticate(session, f"Bearer {token}")
        assert caller is not None
        assert caller.name == "alice"
        (row,) = json.loads(run("token", "list", "alice", "--json").stdout)
        assert row["label"] == "laptop"
        assert token not in run("token", "list", "alice").output

    def test_token_expires_after_the_days_given(self, run: Run) -> None:
        run("user", "create", "alice")
        made = json.loads(run("token", "create", "alice", "--expires", "2d", "--json").stdout)
        left = datetime.fromisoformat(made["expires_at"]) - datetime.now(UTC)
        assert left.days == 1

    def test_revoked_token_ends_and_the_list_says_so(self, run: Run, session: Session) -> None:
        run("user", "create", "alice")
        made = json.loads(run("token", "create", "alice", "--json").stdout)
        assert run("token", "revoke", made["token_id"]).exit_code == 0
        with pytest.raises(Unauthenticated):
            authenticate(session, f"Bearer {made['token']}")
        assert json.loads(run("token", "list", "alice", "--json").stdout)[0]["revoked_at"] is not None

    def test_token_has_the_scope_and_repository_given(self, run: Run) -> None:
        run("user", "create", "alice")
        run("repo", "create", "alice/data")
        run("token", "create", "alice")
        run(*["token", "create", "alice", "--scope", "read", "--repo", "alice/data", "--label", "ci"])
        rows = json.loads(run("token", "list", "alice", "--json").stdout)
        assert [(row["label"], row["scope"], row["repository"]) for row in rows] == [
            ("ci", "read", "alice/data"), ("", "write", None)
        ]  # fmt: skip

    def test_collaborators_are_set_listed_and_removed(self, run: Run) -> None:
        for words in ("user create alice", "user create bob", "repo create alice/data"):
            run(*words.split())
        run(*["repo", "collaborators", "set", "alice/data", "bob", "read"])
        assert "bob may write in" in run(*["repo", "collaborators", "set", "alice/data", "bob", "write"]).stdout
        listed = run(*["repo", "collaborators", "list", "alice/data", "--json"])
        assert json.loads(listed.stdout) == [{"name": "bob", "role": "write"}]
        assert run(*["repo", "collaborators", "remove", "alice/data", "bob"]).exit_code == 0
        assert run(*["repo", "collaborators", "remove", "alice/data", "bob"]).exit_code == 1

    def test_deleted_repository_comes_back_unless_its_name_is_taken(self, run: Run) -> None:
        run("user", "create", "alice")
        run("repo", "create", "alice/data")
        assert "repo restore alice/data" in run("repo", "delete", "alice/data").stdout
        assert json.loads(run("repo", "list", "--json").stdout) == []
        assert run("repo", "delete", "alice/data").exit_code == 1
        assert run("repo", "create", "alice/data", "--private").exit_code == 0
        assert "another repository" in run("repo", "restore", "alice/data").stderr
        run("repo", "delete", "alice/data")
        assert run("repo", "restore", "alice/data").exit_code == 0
        assert json.loads(run("repo", "list", "--json").stdout)[0]["visibility"] == "private"

    def test_audit_shows_what_was_done_to_one_repository_or_to_all(self, run: Run) -> None:
        for words in ("user create alice", "repo create alice/data", "repo create alice/other", "token create alice"):
            run(*words.split())
        entries = json.loads(run("repo", "audit", "alice/data", "--json").stdout)
        assert [(item["action"], item["name"], item["path"]) for item in entries] == [
            ("repository.create", "operator", "alice/data")
        ]  # fmt: skip
        assert len(json.loads(run("repo", "audit", "--json").stdout)) == 3
        assert len(json.loads(run("repo", "audit", "--json", "--limit", "2").stdout)) == 2
        assert "repository.create" in run("repo", "audit", "alice/data").stdout

    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            ("user create Alice", "name:"),
            ("user create alice", "already"),
            ("token create nobody", "no user nobody"),
            ("token list nobody", "no user nobody"),
            ("token revoke 00000000-0000-0000-0000-000000000000", "no token"),
            ("repo create alice", "OWNER/SLUG"),
            ("repo create nobody/data", "no user nobody"),
            ("repo create alice/data", "already"),
            ("repo collaborators set alice/none bob read", "no repository"),
            ("repo collaborators set alice/data nobody read", "no user nobody"),
        ],
    )
    def test_refusal_is_one_sentence_and_status_1(self, run: Run, words: str, sentence: str) -> None:
        run("user", "create", "alice")
        run("repo", "create", "alice/data")
        result = run(*words.split())
        assert result.exit_code == 1
        assert result.stderr.startswith("Error: ")
        assert sentence in result.stderr
        assert result.stderr.count("\n") == 1
        assert result.stdout == ""

    @pytest.mark.parametrize(
        "words",
        [
            "token create alice --expires 0d",
            "token create alice --expires 2w",
            "token create alice --scope own",
            "token revoke x",
            "repo collaborators set a/b c own",
            "user",
            "user create",
        ],
    )
    def test_wrong_usage_is_status_2(self, run: Run, words: str) -> None:
        assert run(*words.split()).exit_code == 2

    def test_empty_list_says_none(self, run: Run) -> None:
        result = run("repo", "list")
        assert (result.stdout, result.stderr, result.exit_code) == ("", "None.\n", 0)
        assert json.loads(run("repo", "list", "--json").stdout) == []

    def test_list_for_people_is_a_table(self, run: Run) -> None:
        run("user", "create", "alice")
        run("repo", "create", "alice/data")
        assert "alice/data" in run("repo", "list").stdout

    def test_database_without_tables_is_said_in_a_sentence(
        self, run: Run, new_database: Callable[[], str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DATABASE_URL", new_database())
        result = run("user", "list")
        assert (result.exit_code, "packhouse migrate" in result.stderr) == (1, True)

    @pytest.mark.parametrize("command", ["user list", "repo list", "gc", "gc --dry-run", "fsck", "fsck --json"])
    def test_database_that_is_away_is_said_in_a_sentence(
        self, run: Run, monkeypatch: pytest.MonkeyPatch, command: str
    ) -> None:
        monkeypatch.setenv("DATABASE_URL", "postgresql://nobody:geheim@127.0.0.1:1/none")
        for name in ("S3_ENDPOINT_URL", "S3_ACCESS_KEY_ID", "S3_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "http://127.0.0.1:1")
        monkeypatch.setenv("PACKHOUSE_SECRET_KEY", "x" * 32)
        result = run(*command.split())
        assert (result.exit_code, "does not answer" in result.stderr) == (1, True)
        assert "geheim" not in result.output

    def test_missing_setting_is_named(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("DATABASE_URL")
        result = run("user", "list")
        assert isinstance(result.exception, SettingsError)
        assert "DATABASE_URL" in str(result.exception)
