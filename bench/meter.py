"""Wall time of a call, and what the servers used for it."""

from __future__ import annotations

import json
import multiprocessing
import statistics
import time
from collections.abc import Callable
from typing import Any

from bench.processes import Use, reset_peak, use_of
from bench.worlds import World


def nothing() -> None:
    """Prepare nothing."""


class Meter:
    """Measures calls, and what the processes of `pids` used meanwhile."""

    def __init__(self, world: World, pids: dict[str, int]) -> None:
        self._world = world
        self._pids = pids

    def measure(
        self,
        what: str,
        call: Callable[[], object],
        *,
        prepare: Callable[[], object] = nothing,
        runs: int = 1,
        clients: int = 1,
        **more: Any,
    ) -> None:
        """Call `runs` times, each time by `clients` processes at once; print the line, wall seconds as the median.

        `prepare` is called before each run, and counts for nothing.
        """
        walls: list[float] = []
        spent = dict.fromkeys(self._pids, 0.0)
        idle: dict[str, float] = {}
        peak = dict.fromkeys(self._pids, 0.0)
        for _ in range(runs):
            prepare()
            before = self._uses(reset=True)
            walls.append(_timed(call, clients))
            for name, use in self._uses().items():
                spent[name] += use.cpu_seconds - before[name].cpu_seconds
                idle.setdefault(name, before[name].peak_mb)
                peak[name] = max(peak[name], use.peak_mb)
        line: dict[str, Any] = {"world": self._world.name, "what": what, "clients": clients, "runs": runs}
        line["wall_s"] = round(statistics.median(walls), 3)
        line |= {name: given() if callable(given) else given for name, given in more.items()}
        for name in self._pids:
            line[f"{name}_cpu_s"] = round(spent[name] / (runs * clients), 4)
            line[f"{name}_peak_mb_above_idle"] = round(peak[name] - idle[name], 1)
        print(json.dumps(line), flush=True)

    def _uses(self, *, reset: bool = False) -> dict[str, Use]:
        if reset:
            for pid in self._pids.values():
                reset_peak(pid)
        return {name: use_of(pid) for name, pid in self._pids.items()}


def _timed(call: Callable[[], object], clients: int) -> float:
    began = time.monotonic()
    if clients == 1:
        call()
        return time.monotonic() - began
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=call) for _ in range(clients)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    if any(child.exitcode for child in children):
        raise SystemExit("a client has failed")
    return time.monotonic() - began
