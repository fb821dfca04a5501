"""Time-ordered ids (UUID version 7, RFC 9562), so that new jobs land at one end of the primary key."""

from __future__ import annotations

import os
import time
from array import array
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Iterator

_NS_PER_MS = 1_000_000
_RANDOM_MAX = 2**62 - 1
_MARKS = 0x7 << 76 | 0b10 << 62
"""Version and variant."""
_DRAW_MAX = 1000


def new_job_id() -> UUID:
    """Make an id: 48 bits of milliseconds, 12 bits of the fraction of a millisecond, 62 random bits."""
    return next(new_job_ids())


def new_job_ids() -> Iterator[UUID]:
    """Make ids without end. Random bits are drawn for several at once, the more the longer it goes on.

    For one caller, who shares it with nobody: a process that forks would make the same ids twice.
    """
    draw = 1
    while True:
        for bits in array("Q", os.urandom(8 * draw)):
            ms, ns = divmod(time.time_ns(), _NS_PER_MS)
            yield UUID(int=ms << 80 | ns * 4096 // _NS_PER_MS << 64 | bits & _RANDOM_MAX | _MARKS)
        draw = min(2 * draw, _DRAW_MAX)
