"""A request of a job, checked field by field and made into the parameters of the enqueue statements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from tasks.errors import PayloadError
from tasks.job import DEDUP_MODES, PARENT_POLICIES, PASS_RESULTS
from tasks.options import ATTEMPTS_MAX, PRIORITY_MAX, PRIORITY_MIN
from tasks.payload import (
    KEY_BYTES_MAX,
    NAME_BYTES_MAX,
    PARENTS_MAX,
    RUNNING_MAX,
    SCOPE_BYTES_MAX,
    check_instant,
    check_seconds,
    check_text,
    check_whole,
    check_word,
    encode_call,
)

if TYPE_CHECKING:
    from tasks.job import NewJob


def new_job_params(new: NewJob) -> dict[str, Any]:
    """Check every field of `new` and return the parameters of the enqueue statements, without the id.

    Raises PayloadError naming the field.
    """
    payload, key = own_params(new)
    return {**kind_params(new), "payload": payload, "dedup_key": key}


def kind_params(new: NewJob) -> dict[str, Any]:
    """Check the fields that many jobs have in common, all but those of `own_params`. Raises PayloadError."""
    if new.available_at is not None and new.countdown is not None:
        raise PayloadError("countdown", "must not be given together with available_at")
    if new.dedup_key is not None:
        check_word("dedup_mode", new.dedup_mode, DEDUP_MODES)
    return {
        **_gate_params(new),
        "task": check_text("task", new.task, NAME_BYTES_MAX),
        "queue": check_text("queue", new.queue, NAME_BYTES_MAX),
        "scope": check_text("scope", new.scope, SCOPE_BYTES_MAX, empty=True),
        "priority": check_whole("priority", new.priority, PRIORITY_MIN, PRIORITY_MAX),
        "tier": check_seconds("tier", new.tier),
        "available_at": check_instant("available_at", new.available_at),
        "countdown": _countdown(new),
        "lease_seconds": check_seconds("lease_seconds", new.lease_seconds, least=0.001),
        "attempts_max": check_whole("attempts_max", new.attempts_max, 1, ATTEMPTS_MAX),
        "postpones_max": check_whole("postpones_max", new.postpones_max, 0, 1_000_000),
        "dedup_mode": None if new.dedup_key is None else new.dedup_mode,
    }


def own_params(new: NewJob) -> tuple[str, str | None]:
    """Payload and key, which each job has for itself; checked, as are the ids of its parents. Raises PayloadError."""
    payload = encode_call(new.payload)
    key = None if new.dedup_key is None else check_text("dedup_key", new.dedup_key, KEY_BYTES_MAX)
    if new.parents:
        if key is not None and new.dedup_mode == "join":
            raise PayloadError("parents", "a job that joins another cannot wait for parents of its own")
        if not all(isinstance(parent, UUID) for parent in new.parents):
            raise PayloadError("parents", "must be ids of jobs")
    return payload, key


def _countdown(new: NewJob) -> float | None:
    if new.available_at is not None:
        return None
    return check_seconds("countdown", 0.0 if new.countdown is None else new.countdown)


def _gate_params(new: NewJob) -> dict[str, Any]:
    """Check what may hold the job back or end it early."""
    if new.expires_at is not None and new.expires is not None:
        raise PayloadError("expires", "must not be given together with expires_at")
    if (new.limit_key is None) != (new.limit_max is None):
        raise PayloadError("limit_max", "must be given together with limit_key")
    return {
        "after_tasks": [check_text("after_tasks", name, NAME_BYTES_MAX) for name in new.after_tasks],
        "expires_at": check_instant("expires_at", new.expires_at),
        "expires": None if new.expires is None else check_seconds("expires", new.expires),
        "limit_key": None if new.limit_key is None else check_text("limit_key", new.limit_key, SCOPE_BYTES_MAX),
        "limit_max": None if new.limit_max is None else check_whole("limit_max", new.limit_max, 1, RUNNING_MAX),
        "parent_count": check_whole("parents", len(new.parents), 0, PARENTS_MAX),
        "on_parent_failure": check_word("on_parent_failure", new.on_parent_failure, PARENT_POLICIES),
        "pass_results": check_word("pass_results", new.pass_results, PASS_RESULTS),
    }
