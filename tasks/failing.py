"""T3, T4, T8: attempts that have failed, many in one statement."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import errors as pg

from tasks.db import Conn, rows, savepoint
from tasks.lanes import let_go
from tasks.payload import check_code, check_instant, check_seconds, clean_error
from tasks.states import TERMINAL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from tasks.job import Outcome, Ref

COLLISIONS_MAX = 10
"""How often a statement is repeated that met a job with its key which its snapshot did not show."""
_OUTCOMES: dict[str, Outcome] = {"pending": "retry", "failed": "failed", "cancelled": "superseded"}


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed attempt.

    `retry_delays`: seconds to wait after the first, second, … failed run; the last one goes on for ever; None: not
    retryable. `spread` is the jitter, a fraction of the delay either way. Raises PayloadError for a code that is
    none, or a delay that is no number of seconds.
    """

    ref: Ref
    code: str
    detail: str
    retry_delays: Sequence[float] | None
    spread: float = 0.0

    def __post_init__(self) -> None:
        check_code(self.code)
        for delay in self.retry_delays or ():
            check_seconds("retry_delays", delay)

    def as_row(self) -> dict[str, Any]:
        """Return what the statement reads."""
        return {
            "job_id": str(self.ref.job_id),
            "token": str(self.ref.claim_token),
            "code": self.code,
            "detail": clean_error(self.detail),
            "retryable": self.retry_delays is not None,
            "delays": list(self.retry_delays or ()),
            "spread": min(max(self.spread, 0.0), 1.0),
        }


def fail_jobs(conn: Conn, failures: Sequence[Failure], *, now: datetime | None = None) -> dict[UUID, Outcome]:
    """T3, T4 or T8 for many: what became of each job, by token; a token that is missing has lost its claim."""
    if not failures:
        return {}
    at = check_instant("now", now)
    try:
        found = _fail(conn, failures, at, 1 if len(failures) > 1 else COLLISIONS_MAX)
    except pg.UniqueViolation:
        if len(failures) == 1:
            raise
        # One of them collides with a pending job that has its key; the others must not wait for it.
        found = [row for one in failures for row in _fail(conn, [one], at, COLLISIONS_MAX)]
    let_go(conn, ended=[row[2] for row in found if row[1] in TERMINAL], limit_keys=[row[3] for row in found])
    return {row[0]: _OUTCOMES[row[1]] for row in found}


def _fail(conn: Conn, failures: Sequence[Failure], now: datetime | None, times: int) -> list[tuple[Any, ...]]:
    params = {"failures": json.dumps([failure.as_row() for failure in failures]), "now": now}
    return repeated(conn, "fail_jobs", params, times)


def repeated(conn: Conn, name: str, params: Mapping[str, Any], times: int = COLLISIONS_MAX) -> list[tuple[Any, ...]]:
    """Run a statement that puts jobs back, up to `times`: a pending job with the key may appear after its snapshot.

    The next snapshot shows it. Raises psycopg's UniqueViolation when it still collides; nothing is written then.
    """
    for last in range(times - 1, -1, -1):
        try:
            with savepoint(conn):
                return rows(conn, name, params)
        except pg.UniqueViolation:
            if not last:
                raise
    raise ValueError("repeat it at least once")
