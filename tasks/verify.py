"""The oracle: what the rows of the queue prove about its promises, on a live system as well as in a test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tasks.db import Conn, records

if TYPE_CHECKING:
    from uuid import UUID


@dataclass(frozen=True, slots=True)
class Violation:
    """A job whose rows contradict a promise. `rule` says in a sentence what is wrong."""

    job_id: UUID
    rule: str


def verify(conn: Conn) -> list[Violation]:
    """Read the whole history in one snapshot and return what is wrong with it; nothing, always.

    For each job: its attempts are numbered 1, 2, 3 … as often as it was claimed; those not released are the
    charged ones, and within the budget; one is open, the holder's, while it runs, and none else; none began before
    the last had ended, or after an end that only a person may undo, unless a person did; it succeeded exactly if its
    last attempt did, and that one began after the last request that was joined to it. No more jobs of a limit ran
    at any instant than it allows. No child ran before its parents had succeeded, its policy being to wait for that, but
    for one of a superseded parent that a person has retried since.
    No attempt and no dependency is without its job.
    What a CHECK or a unique index refuses is not looked for. Costs one pass over all jobs and attempts.
    """
    return records(conn, "find_violations", Violation, {})
