"""Progress as bars on a terminal."""

from __future__ import annotations

from types import TracebackType
from typing import Self

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

from hub.client.progress import Unit


class TerminalProgress:
    """One line per step, with a bar; the sentence about a wait stands in it while it lasts."""

    def __init__(self, console: Console | None = None) -> None:
        self._bars = Bars(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            _Amount(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[waiting]}", markup=False),
            console=console or Console(stderr=True),
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
