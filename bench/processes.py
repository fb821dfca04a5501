"""CPU and memory of a process and its children, from /proc."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
CPUCLOCK_SCHED = 2
"""Linux' clock of what a process has run, user and system together; /proc tells it in hundredths of a second only."""


@dataclass(frozen=True)
class Use:
    """CPU seconds so far, and the peak resident memory in MB."""

    cpu_seconds: float
    peak_mb: float


def use_of(pid: int) -> Use:
    """What the process and its children have used, those that have ended included."""
    seconds = 0.0
    peak = 0
    for one in (pid, *children_of(pid)):
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        ended = sum(map(int, fields[13:15])) / TICKS
        seconds += time.clock_gettime(~one << 3 | CPUCLOCK_SCHED) + ended
        for line in Path(f"/proc/{one}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                peak = max(peak, int(line.split()[1]))
    return Use(seconds, peak / 1024)


def reset_peak(pid: int) -> None:
    """Let the peaks of the process and its children begin again from now."""
    for one in (pid, *children_of(pid)):
        Path(f"/proc/{one}/clear_refs").write_text("5")


def children_of(pid: int) -> list[int]:
    """The process's children, and theirs."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *children_of(int(child))]
    return found
