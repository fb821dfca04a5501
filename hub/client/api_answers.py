"""Answers of the hub's JSON interface below `/api`, as checked values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hub.client.shape import is_id, optional_text, required_text, text, unexpected


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A commit as a reader of the history sees it."""

    commit_id: str
    parents: tuple[str, ...]
    author: str
    branch: str
    message: str
    committed_at: str


@dataclass(frozen=True, slots=True)
class CommitPage:
    """Some commits, newest first; `next` is what the following page comes after, None on the last."""

    entries: tuple[LogEntry, ...]
    next: str | None


def parse_commits(fields: Mapping[str, Any]) -> CommitPage:
    """Check the answer of `GET /api/repositories/OWNER/NAME/commits`."""
    value, more = parse_page(fields, "commits")
    return CommitPage(tuple(_log_entry(item) for item in value), more)


def _log_entry(item: Mapping[str, Any]) -> LogEntry:
    parents = item.get("parents")
    if not is_id(item.get("commit_id")) or not isinstance(parents, list) or not all(map(is_id, parents)):
        raise unexpected("commits", "a list of commits with their parents' ids")
    texts = (text(item.get(name)) for name in ("author", "branch", "message", "committed_at"))
    return LogEntry(item["commit_id"], tuple(parents), *texts)


@dataclass(frozen=True, slots=True)
class Whoami:
    """Whose a token is, and what it is good for."""

    name: str
    scopes: tuple[str, ...]
    expires_at: str | None
    label: str


@dataclass(frozen=True, slots=True)
class RepositoryInfo:
    """A repository as its hub describes it."""

    repo_id: str
    owner: str
    name: str
    visibility: str
    default_branch: str | None
    domain: str
    url: str


@dataclass(frozen=True, slots=True)
class Collaborator:
    """Somebody who has a role in a repository."""

    name: str
    role: str


def parse_page(fields: Mapping[str, Any], name: str) -> tuple[list[dict[str, Any]], str | None]:
    """Check a page of a list `name`: its items, and what the next page comes after, None on the last."""
    value, more = fields.get(name), optional_text(fields, "next")
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise unexpected(name, "a list of objects")
    if more is not None and not value:
        raise unexpected("next", "null on a page without items")
    return value, more


def parse_collaborator(fields: Mapping[str, Any]) -> Collaborator:
    """Check a collaborator as the API shows them."""
    return Collaborator(required_text(fields, "name"), required_text(fields, "role"))


def parse_whoami(fields: Mapping[str, Any]) -> Whoami:
    """Check the answer of `GET /api/whoami`."""
    scopes = fields.get("scopes")
    if not isinstance(scopes, list) or not all(isinstance(scope, str) for scope in scopes):
        raise unexpected("scopes", "a list of texts")
    return Whoami(
        required_text(fields, "name"), tuple(scopes), optional_text(fields, "expires_at"), text(fields.get("label"))
    )


def parse_repository(fields: Mapping[str, Any]) -> RepositoryInfo:
    """Check a repository as the API shows it."""
    repo_id, owner, name, visibility = (
        required_text(fields, key) for key in ("repo_id", "owner", "name", "visibility")
    )
    return RepositoryInfo(
        repo_id, owner, name, visibility, optional_text(fields, "default_branch"),
        text(fields.get("domain")), text(fields.get("url")),
    )  # fmt: skip
