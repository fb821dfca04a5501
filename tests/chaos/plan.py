"""What is done to whom, and when: all of it follows from the seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

Kind = Literal["kill worker", "kill sweep", "cut connection", "restart"]

WORKERS = 4
SWEEPS = 2
RESTARTS = (0.15, 0.4, 0.65)
"""At which parts of the run the server is restarted."""
PAUSES: dict[Kind, tuple[float, float]] = {
    "kill worker": (2.0, 4.0),
    "kill sweep": (5.0, 9.0),
    "cut connection": (0.5, 1.5),
}
"""Shortest and longest pause in seconds between two blows of a kind."""


@dataclass(frozen=True, slots=True, order=True)
class Blow:
    """`at` is in seconds from the start; `pick` chooses the victim among however many there are."""

    at: float
    kind: Kind
    pick: int


def blows(seed: int, seconds: float) -> list[Blow]:
    """All blows of a run, in order."""
    chance = random.Random(seed)
    found = [Blow(seconds * part, "restart", 0) for part in RESTARTS]
    for kind, (least, most) in PAUSES.items():
        at = chance.uniform(least, most)
        while at < seconds:
            found.append(Blow(at, kind, chance.randrange(1 << 30)))
            at += chance.uniform(least, most)
    return sorted(found)
