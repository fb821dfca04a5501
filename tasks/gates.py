"""Gates: «not claimable while …». Not a state: a predicate that the claim evaluates.

The gate is stamped on the job at enqueue, so any claimer and `why` can evaluate it without the code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tasks.errors import PayloadError
from tasks.payload import NAME_BYTES_MAX, RUNNING_MAX, SCOPE_BYTES_MAX, check_text, check_whole


class After:
    """Shut while any job of the named tasks, in the same scope, is pending or running.

    The job itself never counts, and a job at an end never does, whatever the end. There is no time-out: under
    an endless stream of such jobs the gated one waits, and `why` says for which.

    A task may name itself (one run at a time in a scope), if its dedup key leaves one pending job per scope:
    two pending ones would wait for each other.
    """

    __slots__ = ("tasks",)

    def __init__(self, *tasks: str) -> None:
        """Raises PayloadError when a name cannot be one, TypeError when there is none."""
        if not tasks:
            raise TypeError("After() needs the name of at least one task")
        self.tasks: tuple[str, ...] = tuple(check_text("After", name, NAME_BYTES_MAX) for name in tasks)

    def __repr__(self) -> str:
        """As it is written."""
        return f"After({', '.join(map(repr, self.tasks))})"

    def __eq__(self, other: object) -> bool:
        """Equal when it names the same tasks in the same order."""
        return isinstance(other, After) and other.tasks == self.tasks

    def __hash__(self) -> int:
        """By the names."""
        return hash(self.tasks)


@dataclass(frozen=True, slots=True)
class Limit:
    """Shut while `running` jobs of this key run, in any scope, queue or task that names it.

    Running jobs are counted, there is no counter: a worker that was given up and ends late gives no place back twice.
    """

    key: str
    running: int

    def __post_init__(self) -> None:
        """Refuse what could not work. Raises PayloadError."""
        check_text("Limit key", self.key, SCOPE_BYTES_MAX)
        check_whole("Limit running", self.running, 1, RUNNING_MAX)


class All:
    """Open when each of its gates is: any number of `After`, one `Limit`. A tuple of gates means the same."""

    __slots__ = ("gates",)

    def __init__(self, *gates: Gate) -> None:
        """Raises PayloadError for what is no gate, or a second limit."""
        self.gates: tuple[After | Limit, ...] = tuple(_flat(gates))
        if sum(isinstance(gate, Limit) for gate in self.gates) > 1:
            raise PayloadError("gate", "a job has one Limit at most")

    def __repr__(self) -> str:
        """As it is written."""
        return f"All({', '.join(map(repr, self.gates))})"

    def __eq__(self, other: object) -> bool:
        """Equal when it has the same gates in the same order."""
        return isinstance(other, All) and other.gates == self.gates

    def __hash__(self) -> int:
        """By the gates."""
        return hash(self.gates)


Gate = After | Limit | All | tuple["Gate", ...]
"""What a task may declare as its gate."""


def stamp(gate: Gate | None) -> dict[str, Any]:
    """Return what a gate writes on a job: `after_tasks`, `limit_key` and `limit_max` of a NewJob.

    Raises PayloadError for what is no gate.
    """
    gates = All(*(() if gate is None else (gate,))).gates
    limit = next((one for one in gates if isinstance(one, Limit)), None)
    return {
        "after_tasks": tuple(dict.fromkeys(name for one in gates if isinstance(one, After) for name in one.tasks)),
        "limit_key": limit and limit.key,
        "limit_max": limit and limit.running,
    }


def _flat(gates: object) -> Iterator[After | Limit]:
    if isinstance(gates, (After, Limit)):
        yield gates
    elif isinstance(gates, All):
        yield from gates.gates
    elif isinstance(gates, tuple):
        for gate in gates:
            yield from _flat(gate)
    else:
        raise PayloadError("gate", f"must be After(…), Limit(…), All(…) or a tuple of them, not {gates!r}")
