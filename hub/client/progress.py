"""What the person at the terminal sees while a command runs. Always on stderr; stdout is for results."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Protocol, Self

if TYPE_CHECKING:
    from hub.client.bars import TerminalProgress

Unit = Literal["bytes", "things"]


class Progress(Protocol):
    """What the client reports to while it works."""

    def begin(self, what: str, total: int | None, unit: Unit = "things") -> None:
        """Say that the step `what` begins; `total` is None while nobody knows it."""

    def at(self, done: int) -> None:
        """Say how much of the step is done; may go back when a transfer begins again."""

    def waiting(self, sentence: str) -> None:
        """Say what is waited for."""


class Silent:
    """Shows nothing: no terminal, or --quiet."""

    def begin(self, what: str, total: int | None, unit: Unit = "things") -> None:
        """Show nothing."""

    def at(self, done: int) -> None:
        """Show nothing."""

    def waiting(self, sentence: str) -> None:
        """Show nothing."""

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Have nothing to put away."""


def open_progress(*, quiet: bool) -> Silent | TerminalProgress:
    """Choose how to show progress: bars on a terminal, nothing elsewhere or when `quiet`."""
    if quiet or not sys.stderr.isatty():
        return Silent()
    from hub.client.bars import TerminalProgress  # rich takes longer to import than a small clone takes

    return TerminalProgress()
