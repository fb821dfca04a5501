"""Answers of the hub's JSON interface below `/api`, as checked values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hub.client.shape import is_id, optional_text, text, unexpected


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
    value = fields.get("commits")
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise unexpected("commits", "a list of objects")
    return CommitPage(tuple(_log_entry(item) for item in value), optional_text(fields, "next"))


def _log_entry(item: Mapping[str, Any]) -> LogEntry:
    parents = item.get("parents")
    if not is_id(item.get("commit_id")) or not isinstance(parents, list) or not all(map(is_id, parents)):
        raise unexpected("commits", "a list of commits with their parents' ids")
    texts = (text(item.get(name)) for name in ("author", "branch", "message", "committed_at"))
    return LogEntry(item["commit_id"], tuple(parents), *texts)
