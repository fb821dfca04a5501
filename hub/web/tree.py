"""What the page of a repository shows of a head: its first files with their last commits, its languages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.orm import Session

from hub.last_commits import manifest_of, read_last_commits
from hub.models import CodeIntel, Commit

LANGUAGES = 6
"""Languages in the bar; those behind have less to say."""
GOLDEN_ANGLE = 137
"""Degrees from one hue to the next: neighbours differ, however many there are."""


@dataclass(frozen=True, slots=True)
class File:
    """One line of the list. No message and time: the last commit is not known yet."""

    path: str
    message: str | None
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Tree:
    """What is shown. `more`: files that are not."""

    files: list[File]
    more: int
    languages: list[dict[str, Any]]


def head_tree(session: Session, repository_id: UUID, commit_id: str, *, limit: int) -> Tree:
    """The first files of a commit's tree, by path, and its languages as far as they are known."""
    paths = sorted(manifest_of(session, repository_id, commit_id))
    known = read_last_commits(session, repository_id, commit_id) or {}
    shown = paths[:limit]
    wanted = {known[path] for path in shown if path in known}
    commits = {
        row.commit_id: row
        for row in session.execute(
            select(Commit.commit_id, Commit.message, Commit.committed_at).where(
                Commit.repository_id == repository_id, Commit.commit_id.in_(wanted)
            )
        )
    }
    files = []
    for path in shown:
        commit = commits.get(known.get(path, ""))
        files.append(
            File(path, None, None)
            if commit is None
            else File(path, commit.message.partition("\n")[0][:100], commit.committed_at)
        )
    row = session.get(CodeIntel, (repository_id, commit_id))
    return Tree(files, len(paths) - len(shown), [] if row is None else _bar(row.statistics))


def _bar(statistics: dict[str, Any]) -> list[dict[str, Any]]:
    total = statistics["bytes"]
    shares = [
        (item["name"], round(100 * item["bytes"] / total, 1)) for item in statistics["languages"][:LANGUAGES] if total
    ]
    return [
        {"name": name, "percent": percent, "hue": (210 + GOLDEN_ANGLE * number) % 360}
        for number, (name, percent) in enumerate(shares)
        if percent
    ]
