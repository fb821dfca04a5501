"""What fsck can find, what each means, and what is to be done."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from uuid import UUID


class Code(Enum):
    """A kind of finding: what it means to those who use the repository, and what mends it."""

    COMMIT_WRONG = "a commit's record is damaged in the database: restore the database from a backup"
    COMMIT_MISSING = "history is cut off: restore the database from a backup"
    SNAPSHOT_WRONG = "a directory tree is damaged in the database: restore the database from a backup"
    OBJECT_MISSING = "no sound pack has this content, clones fail: push it again from a clone that has it"
    PACK_MISSING = "the pack's file is gone from the archive: --repair sets it aside; push its content again"
    PACK_DAMAGED = "the pack's file is damaged in the archive: --repair sets it aside; push its content again"
    PACK_SET_ASIDE = "the pack was found damaged before and waits for its content to be pushed again"
    NOT_INDEXED = "no job is going to index the pack, clones wait for ever: --repair queues one"
    INDEX_WRONG = "the index differs from the pack's own: --repair indexes it again"
    CACHE_MISSING = "what the clone cache names is gone or damaged, clones wait or fail: --repair builds it again"
    NOT_PREBUILT = "no job is going to prepare clones of the present branches: --repair queues one"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. `subject`: the id of the commit, snapshot, object or pack; `detail`: what was seen."""

    repository_id: UUID
    path: str
    code: Code
    subject: str
    detail: str

    def said(self) -> dict[str, str]:
        """As the command prints it."""
        return {
            "repository": self.path,
            "finding": self.code.name,
            "subject": self.subject,
            "detail": self.detail,
            "meaning": self.code.value,
        }
