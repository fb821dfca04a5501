"""What is missing between rows that need each other; for fsck. Foreign keys forbid it, restored backups happen."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import text
from sqlalchemy.orm import Session

GAPS_MAX = 100


def cut_commits(session: Session, repository_id: UUID) -> list[tuple[str, str]]:
    """(commit, reason) where history breaks off or is numbered wrongly, at most GAPS_MAX."""
    rows = session.execute(CUT, {"repository_id": repository_id, "limit": GAPS_MAX})
    return [(bytes(row.commit_id).hex(), row.reason) for row in rows]


def index_rows(
    session: Session, repository_id: UUID, mpack_id: str, blocks: tuple[int, int]
) -> list[tuple[int, str, int, int, int]]:
    """(kind, id, block, offset, length) of what the index has in these blocks, first and last, in the file's order."""
    rows = session.execute(
        INDEXED,
        {
            "repository_id": repository_id,
            "mpack_id": bytes.fromhex(mpack_id),
            "first": blocks[0],
            "last": blocks[1],
        },
    )
    return [(row.kind, bytes(row.entity_id).hex(), row.block, row.raw_offset, row.raw_length) for row in rows]


def block_rows(session: Session, repository_id: UUID, mpack_id: str) -> list[tuple[int, ...]]:
    """(number, offset, stored length, raw length, codec, checksum, entries) of the blocks that the index has."""
    rows = session.execute(BLOCKS, {"repository_id": repository_id, "mpack_id": bytes.fromhex(mpack_id)})
    return [tuple(row) for row in rows]


CUT = text("""
SELECT c.commit_id, CASE
    WHEN s.snapshot_id IS NULL THEN 'its snapshot is missing'
    WHEN (c.parent_commit_id IS NOT NULL AND p.commit_id IS NULL)
        OR (c.parent2_commit_id IS NOT NULL AND q.commit_id IS NULL) THEN 'a parent is missing'
    ELSE 'its generation number is not one more than its parents'''
END AS reason
FROM hub.commit c
LEFT JOIN hub.snapshot s ON s.repository_id = c.repository_id AND s.snapshot_id = c.snapshot_id
LEFT JOIN hub.commit p ON p.repository_id = c.repository_id AND p.commit_id = c.parent_commit_id
LEFT JOIN hub.commit q ON q.repository_id = c.repository_id AND q.commit_id = c.parent2_commit_id
WHERE c.repository_id = :repository_id AND (
    s.snapshot_id IS NULL
    OR (c.parent_commit_id IS NOT NULL AND p.commit_id IS NULL)
    OR (c.parent2_commit_id IS NOT NULL AND q.commit_id IS NULL)
    OR c.generation <> coalesce(greatest(p.generation, q.generation) + 1, 0)
)
UNION ALL
SELECT b.head_commit_id, 'the branch ' || b.name || ' names it, and it is missing'
FROM hub.branch b
LEFT JOIN hub.commit c ON c.repository_id = b.repository_id AND c.commit_id = b.head_commit_id
WHERE b.repository_id = :repository_id AND c.commit_id IS NULL
LIMIT :limit
""")

INDEXED = text("""
SELECT kind, entity_id, block, raw_offset, raw_length FROM hub.mpack_index
WHERE repository_id = :repository_id AND mpack_id = :mpack_id AND block BETWEEN :first AND :last
ORDER BY block, raw_offset
""")

BLOCKS = text("""
SELECT block, stored_offset, stored_length, raw_length, codec, checksum, entries FROM hub.mpack_block
WHERE repository_id = :repository_id AND mpack_id = :mpack_id
ORDER BY block
""")
