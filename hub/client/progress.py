"""What the person at the terminal sees while a command runs. Always on stderr; stdout is for results."""

from __future__ import annotations

from types import TracebackType
from typing import Literal, Protocol, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.progress import Progress as Bars
from rich.text import Text

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


class TerminalProgress:
    """One line per step, with a bar; the sentence about a wait stands in it while it lasts."""

    def __init__(self, console: Console) -> None:
        self._bars = Bars(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            _Amount(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[waiting]}", markup=False),
            console=console,
            transient=True,
        )
        self._step: TaskID | None = None

    def __enter__(self) -> Self:
        """Start drawing."""
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop drawing and remove the bars."""
        self._bars.stop()

    def begin(self, what: str, total: int | None, unit: Unit = "things") -> None:
        """Start the line of a step; the one before is done."""
        if self._step is not None:
            self._bars.remove_task(self._step)
        self._step = self._bars.add_task(what, total=total, unit=unit, waiting="")

    def at(self, done: int) -> None:
        """Move the bar."""
        if self._step is not None:
            self._bars.update(self._step, completed=done, waiting="")

    def waiting(self, sentence: str) -> None:
        """Show `sentence` beside the bar."""
        if self._step is None:
            self.begin("Waiting", None)
        if self._step is not None:
            self._bars.update(self._step, waiting=sentence)


class _Amount(ProgressColumn):
    """Bytes with their speed, or a plain count."""

    def __init__(self) -> None:
        super().__init__()
        self._bytes = DownloadColumn()
        self._speed = TransferSpeedColumn()
        self._count = MofNCompleteColumn()

    def render(self, task: Task) -> Text:
        """Draw one step's amount."""
        if task.total is None:
            return Text()
        if task.fields["unit"] == "bytes":
            return Text.assemble(self._bytes.render(task), " ", self._speed.render(task))
        return self._count.render(task)


def open_progress(*, quiet: bool) -> Silent | TerminalProgress:
    """Choose how to show progress: bars on a terminal, nothing elsewhere or when `quiet`."""
    console = Console(stderr=True)
    return Silent() if quiet or not console.is_terminal else TerminalProgress(console)
