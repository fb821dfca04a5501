"""Gates: «not claimable while …». Not a state: a predicate that the claim evaluates.

The gate is stamped on the job at enqueue, so any claimer and `why` can evaluate it without the code.
"""

from __future__ import annotations

from tasks.payload import NAME_BYTES_MAX, check_text


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
