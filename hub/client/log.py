"""The history of a branch: from what a working directory keeps, or from the hub."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from hub.client import packs, workdir
from hub.client.api_answers import LogEntry
from hub.client.errors import Refused
from hub.client.transport import Remote
from hub.records import Commit

PAGE = 100
"""Commits asked for at a time."""


@dataclass(frozen=True, slots=True)
class Log:
    """The newest commits of a branch; None: the default one.

    `whole`: nothing older was left out for want of its record.
    """

    branch: str | None
    entries: tuple[LogEntry, ...]
    whole: bool


def local_log(directory: Path, branch: str | None, limit: int) -> Log:
    """Read at most `limit` commits of a branch without network, newest first.

    `branch` None: that of the directory, from the commit that its files were made from. A directory that was
    only pushed knows its own commits. Raises BadInput for a directory that is none, Refused for an unknown
    branch.
    """
    known = workdir.opened(directory)
    heads = workdir.load_heads(directory)
    head = known.head if branch is None else heads.get(branch)
    if branch is not None and head is None:
        there = f"there are {', '.join(sorted(heads)[:20])}" if heads else "no branch is known here"
        raise Refused(404, "NO_SUCH_BRANCH", f"No branch «{branch}» is known here; {there}. `packhouse fetch` asks.")
    commits = packs.read_commits(directory)
    found: list[LogEntry] = []
    whole = True
    for commit in _newest_first(commits, head):
        if len(found) == limit:
            break
        found.append(
            LogEntry(
                commit.commit_id, commit.parents, commit.author, commit.branch, commit.message, commit.committed_at
            )
        )
        whole = whole and all(parent in commits for parent in commit.parents)
    return Log(branch or known.branch, tuple(found), whole)


def remote_log(remote: Remote, branch: str | None, limit: int) -> Log:
    """Ask the hub for at most `limit` commits of a branch, newest first. Raises the errors of Remote."""
    found: list[LogEntry] = []
    after: str | None = None
    while True:
        page = remote.commits(branch, min(limit - len(found), PAGE), after)
        found += page.entries
        after = page.next
        if after is None or not page.entries or len(found) >= limit:
            return Log(branch, tuple(found[:limit]), whole=True)


def _newest_first(commits: Mapping[str, Commit], head: str | None) -> Iterator[Commit]:
    """Walk from the head, of all commits met the newest first: a child always comes before its parents."""
    met = {head}
    waiting = [_aged(commits[head])] if head is not None and head in commits else []
    while waiting:
        _, commit_id = heapq.heappop(waiting)
        commit = commits[commit_id]
        yield commit
        for parent in commit.parents:
            if parent in commits and parent not in met:
                met.add(parent)
                heapq.heappush(waiting, _aged(commits[parent]))


def _aged(commit: Commit) -> tuple[float, str]:
    return -datetime.fromisoformat(commit.committed_at).timestamp(), commit.commit_id
