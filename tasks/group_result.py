"""What became of several jobs together: the result of a group."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from tasks.eager import EagerResult
from tasks.options import refuse
from tasks.result import REVOKED, AsyncResult, deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tasks.db import Conn


class GroupResult:
    """The results of a group, in the order of its members. `parent` is the result of the step before."""

    def __init__(self, results: Sequence[AsyncResult], *, parent: AsyncResult | GroupResult | None = None) -> None:
        self.results = tuple(results)
        self.parent = parent

    def __repr__(self) -> str:
        return f"<GroupResult of {len(self.results)}>"

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[AsyncResult]:
        return iter(self.results)

    def __getitem__(self, index: int) -> AsyncResult:
        return self.results[index]

    @property
    def children(self) -> tuple[AsyncResult, ...]:
        """The results, by Celery's other name."""
        return self.results

    def ready(self) -> bool:
        """Whether all have reached an end."""
        return all(self._each(_ready))

    def successful(self) -> bool:
        """Whether all have succeeded."""
        return all(self._each(_successful))

    def failed(self) -> bool:
        """Whether one has failed for good."""
        return any(self._each(_failed))

    def completed_count(self) -> int:
        """How many have succeeded."""
        return sum(self._each(_successful))

    def get(self, timeout: float | None = None, *, propagate: bool = True, **options: Any) -> list[Any]:
        """Wait for all and return their results in order, for `timeout` seconds at most in all.

        Raises as `AsyncResult.get` does, the first error in order.
        """
        refuse("get", options, ("propagate", "timeout"))
        until = deadline(timeout)
        return list(self._each(lambda result, conn: _wait(result, conn, until, propagate=propagate)))

    join = get

    def revoke(self, *, reason: str = REVOKED, session: Conn | None = None) -> None:
        """Cancel those that have not ended, each in a transaction of its own or all in that of `session`."""
        for result in self.results:
            if not result.ready():
                result.revoke(reason=reason, session=session)

    def _each(self, ask: Callable[[AsyncResult, Conn | None], Any]) -> Iterator[Any]:
        """Ask every result, all on one connection."""
        real = next((result for result in self.results if not isinstance(result, EagerResult)), None)
        with nullcontext() if real is None else real.reading() as conn:
            for result in self.results:
                yield ask(result, conn)


def _ready(result: AsyncResult, conn: Conn | None) -> bool:
    return result.ready() if conn is None else result.read(conn).terminal


def _successful(result: AsyncResult, conn: Conn | None) -> bool:
    return result.successful() if conn is None else result.read(conn).status == "succeeded"


def _failed(result: AsyncResult, conn: Conn | None) -> bool:
    return result.failed() if conn is None else result.read(conn).status in {"failed", "quarantined"}


def _wait(result: AsyncResult, conn: Conn | None, until: float | None, *, propagate: bool) -> Any:
    return result.get(propagate=propagate) if conn is None else result.wait(conn, until, propagate=propagate)
