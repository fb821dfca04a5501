"""The commits that a branch or a commit reaches, newest first, a page at a time at a bounded cost.

The order is that of generation numbers, so every commit comes before its parents. A page walks no deeper than it is
long: each generation down to the root has a commit, and a page of n commits ends within n generations. Where it ended
is told by its cursor: the last commit, and the commits from which the rest is reached.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA
from sqlalchemy.orm import Session

from hub.errors import Invalid
from hub.models.history import branch_heads
from hub.record_bytes import decode_record
from hub.refs import find_commit

CURSOR = re.compile(r"[0-9a-f]{64}(\.[0-9a-f]{64}){1,50}")
STARTS_MAX = 50
"""Ids in a cursor. Of a wider history the next page walks from where this one did."""
PAGE_BYTES = 1024 * 1024
"""Text of one page, roughly: messages can be long."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page of commits, and the cursor of the next one; None when there is none."""

    commits: list[dict[str, Any]]
    next: str | None


def list_commits(
    session: Session, repository_id: UUID, *, ref: str | None, default: str, after: str | None, limit: int
) -> Page:
    """Up to `limit` commits that `ref` reaches, `ref` being a branch, a tag or an id; None: the default branch.

    Raises Missing for an unknown ref, Invalid for a cursor that no page gave.
    """
    last, starts = _read_cursor(after) if after else (None, _resolve(session, repository_id, ref, default))
    rows = _walk(session, repository_id, starts, last, limit + 1)
    if not rows:
        return Page([], None)
    shown, size = [], 0
    for commit in _read(session, repository_id, list(rows)[:limit]):
        shown.append(commit)
        size += len(commit["message"]) + len(commit["author"])
        if size > PAGE_BYTES:
            break
    if len(shown) == len(rows):
        return Page(shown, None)
    seen = [commit["commit_id"] for commit in shown]
    frontier = {*starts, *(parent for commit_id in seen for parent in rows[commit_id])} - set(seen)
    onward = sorted(frontier) if len(frontier) <= STARTS_MAX else starts
    return Page(shown, ".".join([seen[-1], *onward]))


def _resolve(session: Session, repository_id: UUID, ref: str | None, default: str) -> list[str]:
    if ref is None:
        heads = branch_heads(session, repository_id)
        return [heads[default]] if default in heads else sorted(set(heads.values()))[:1]
    return [find_commit(session, repository_id, ref).commit_id]


def _read_cursor(after: str) -> tuple[str, list[str]]:
    if not CURSOR.fullmatch(after):
        raise Invalid("after", "must be the `next` of another page.")
    last, *starts = after.split(".")
    return last, starts


def _walk(
    session: Session, repository_id: UUID, starts: list[str], last: str | None, limit: int
) -> dict[str, tuple[str, ...]]:
    """Commit → parents, in order: the first of those that the starts reach and that come after `last`."""
    found = session.execute(
        WALK,
        {
            "repository_id": repository_id,
            "ids": [bytes.fromhex(commit_id) for commit_id in starts],
            "last": bytes.fromhex(last) if last else None,
            "limit": limit,
        },
    )
    return {
        bytes(row.commit_id).hex(): tuple(
            bytes(parent).hex() for parent in (row.parent_commit_id, row.parent2_commit_id) if parent is not None
        )
        for row in found
    }


def _read(session: Session, repository_id: UUID, commit_ids: list[str]) -> Iterator[dict[str, Any]]:
    """The commits as the API shows them; a few records at a time, since one can be very large."""
    parameters = {"repository_id": repository_id, "ids": [bytes.fromhex(commit_id) for commit_id in commit_ids]}
    with session.execute(RECORDS, parameters, execution_options={"yield_per": 4}) as found:
        for (raw,) in found:
            record = decode_record(bytes(raw), "commit")
            parents = (record.get("parent_commit_id"), record.get("parent2_commit_id"))
            yield {
                "commit_id": record["commit_id"],
                "parents": [parent for parent in parents if parent is not None],
                "author": record.get("author", ""),
                "branch": record.get("branch", ""),
                "message": record["message"],
                "committed_at": record["committed_at"],
            }


IDS = bindparam("ids", type_=ARRAY(BYTEA))

WALK = text("""
WITH RECURSIVE given AS (
    SELECT commit_id, generation FROM hub.commit WHERE repository_id = :repository_id AND commit_id = ANY(:ids)
), last AS (
    SELECT commit_id, generation FROM hub.commit
    WHERE repository_id = :repository_id AND commit_id = CAST(:last AS bytea)
), walk (commit_id) AS (
    SELECT commit_id FROM given
    UNION
    SELECT parent.commit_id
    FROM walk
    JOIN hub.commit child ON child.repository_id = :repository_id AND child.commit_id = walk.commit_id
    JOIN hub.commit parent ON parent.repository_id = :repository_id
        AND parent.commit_id IN (child.parent_commit_id, child.parent2_commit_id)
    WHERE parent.generation >= coalesce((SELECT generation FROM last), (SELECT max(generation) FROM given)) - :limit
)
SELECT found.commit_id, found.parent_commit_id, found.parent2_commit_id
FROM walk
JOIN hub.commit found ON found.repository_id = :repository_id AND found.commit_id = walk.commit_id
WHERE CAST(:last AS bytea) IS NULL
    OR (found.generation, found.commit_id) < (SELECT generation, commit_id FROM last)
ORDER BY found.generation DESC, found.commit_id DESC
LIMIT :limit
""").bindparams(IDS)

RECORDS = text("""
SELECT c.record
FROM unnest(:ids) WITH ORDINALITY given (commit_id, place)
JOIN hub.commit c ON c.repository_id = :repository_id AND c.commit_id = given.commit_id
ORDER BY given.place
""").bindparams(IDS)
