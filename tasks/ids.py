"""Time-ordered ids (UUID version 7, RFC 9562), so that new jobs land at one end of the primary key."""

from __future__ import annotations

import secrets
import time
from uuid import UUID

_NS_PER_MS = 1_000_000


def new_job_id() -> UUID:
    """Make an id: 48 bits of milliseconds, 12 bits of the fraction of a millisecond, 62 random bits."""
    ms, ns = divmod(time.time_ns(), _NS_PER_MS)
    fraction = ns * 4096 // _NS_PER_MS
    value = (ms & (2**48 - 1)) << 80 | 0x7 << 76 | fraction << 64 | 0b10 << 62 | secrets.randbits(62)
    return UUID(int=value)
