"""The state machine of a job, as data. The reference page and the tests are made from it.

pending      waiting; a claim moves it on once it is due, its gate is open and a worker knows its task
running      claimed; the holder of the claim token moves it on, or the sweep when the lease is over
succeeded    final
failed       final: the task said no, or its budget is spent
cancelled    final: by a person, or by a rule: somebody else does the work (`superseded`), it came too late
             (`expired`), what it waited for did not succeed (`parent`)
quarantined  final: evidence kept for a person

Final means: only a person moves it on (T11), and nobody moves a job that has succeeded.

Scheduled, retrying and gated are not states but predicates over `pending`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """Where a job is."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    QUARANTINED = "quarantined"


TERMINAL = frozenset({Status.SUCCEEDED, Status.FAILED, Status.CANCELLED, Status.QUARANTINED})


class Ending(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    ABANDONED = "ABANDONED"
    RELEASED = "RELEASED"
    CANCELLED = "CANCELLED"
    QUARANTINED = "QUARANTINED"


@dataclass(frozen=True, slots=True)
class Move:
    """One arrow. `statement` names the one SQL file that makes it; `ending` is how the attempt is closed."""

    id: str
    source: Status | None
    target: Status
    who: str
    when: str
    statement: str
    ending: Ending | None = None


_P, _R = Status.PENDING, Status.RUNNING

MOVES: tuple[Move, ...] = (
    Move("T0", None, _P, "enqueue", "in the caller's transaction", "enqueue_jobs"),
    Move("T1", _P, _R, "claim", "due, budget left, gates open, task known", "claim_jobs"),
    Move("T2", _R, Status.SUCCEEDED, "holder", "the task returned", "finish_jobs", Ending.SUCCEEDED),
    Move("T3", _R, _P, "holder", "retryable failure, budget left", "fail_jobs", Ending.FAILED),
    Move("T4", _R, Status.FAILED, "holder", "not retryable, or budget spent", "fail_jobs", Ending.FAILED),
    Move("T4p", _R, Status.FAILED, "holder", "postponed too often", "release_job", Ending.FAILED),
    Move("T5a", _R, _P, "sweep", "lease over, budget left", "sweep_expired", Ending.ABANDONED),
    Move("T5b", _R, Status.FAILED, "sweep", "lease over, budget spent", "sweep_expired", Ending.ABANDONED),
    Move("T6", _P, Status.CANCELLED, "person", "with a reason", "cancel_job"),
    Move("T6e", _P, Status.CANCELLED, "sweep", "expired", "expire_jobs"),
    Move("T6p", _P, Status.CANCELLED, "sweep", "a parent failed, and the policy is cancel", "cancel_children"),
    Move("T7", _R, Status.CANCELLED, "person", "with a reason", "cancel_job", Ending.CANCELLED),
    Move("T8f", _R, Status.CANCELLED, "holder", "T3, but a pending job has its key", "fail_jobs", Ending.FAILED),
    Move("T8s", _R, Status.CANCELLED, "sweep", "T5a, but a pending job has its key", "sweep_expired", Ending.ABANDONED),
    Move("T8r", _R, Status.CANCELLED, "holder", "T9, but a pending job has its key", "release_job", Ending.RELEASED),
    Move("T9", _R, _P, "holder", "worker stops, or the task postpones itself", "release_job", Ending.RELEASED),
    Move("T10", _R, Status.QUARANTINED, "holder", "the task raised Quarantine", "quarantine_job", Ending.QUARANTINED),
    Move("T10p", _P, Status.QUARANTINED, "person", "set aside, with a reason", "set_aside_job"),
    Move("T10r", _R, Status.QUARANTINED, "person", "set aside, with a reason", "set_aside_job", Ending.QUARANTINED),
    Move("T11f", Status.FAILED, _P, "person", "retry, with a reason", "retry_job"),
    Move("T11c", Status.CANCELLED, _P, "person", "retry, with a reason", "retry_job"),
    Move("T11q", Status.QUARANTINED, _P, "person", "retry, with a reason", "retry_job"),
)


def diagram() -> str:
    """Draw the machine as a Mermaid state diagram."""
    lines = ["stateDiagram-v2"]
    for move in MOVES:
        source = move.source or "[*]"
        lines.append(f"    {source} --> {move.target}: {move.id} {move.when}")
    lines.extend(f"    {status} --> [*]" for status in Status if status in TERMINAL)
    return "\n".join(lines)


def table() -> str:
    """Write the moves as a Markdown table."""
    lines = ["| id | from | to | who | when | attempt | statement |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for m in MOVES:
        cells = (m.id, m.source or "–", m.target, m.who, m.when, m.ending or "–", f"`{m.statement}.sql`")
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines)
