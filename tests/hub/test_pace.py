"""The pace of a request's body, with a clock that passes by receiving only."""

from __future__ import annotations

import pytest

from hub.errors import TooSlow
from hub.wire.pace import BYTES_PER_SECOND, PacedSocket


class Sender:
    """A client: (seconds, bytes) for each piece; None bytes: a pause that the socket ends."""

    def __init__(self, *pieces: tuple[float, int | None]) -> None:
        self.pieces = list(pieces)
        self.now = 100.0

    def recv(self, size: int, /) -> bytes:
        seconds, count = self.pieces.pop(0)
        self.now += seconds
        if count is None:
            raise BlockingIOError
        return b"x" * min(size, count)

    def paced(self, idle_seconds: float = 60.0) -> PacedSocket:
        return PacedSocket(self, idle_seconds, clock=lambda: self.now)


def test_body_at_the_pace_may_take_as_long_as_it_is_long() -> None:
    paced = Sender(*[(1.0, BYTES_PER_SECOND)] * 1000).paced()
    assert sum(len(paced.recv(1 << 20)) for _ in range(1000)) == 1000 * BYTES_PER_SECOND


def test_trickle_ends_after_the_time_that_pauses_have_together() -> None:
    sender = Sender(*[(1.0, 1)] * 100)
    paced = sender.paced()
    for _ in range(60):
        assert paced.recv(4096) == b"x"
    with pytest.raises(TooSlow, match="a pause of 60 s"):
        paced.recv(4096)


def test_time_in_which_the_hub_does_not_read_is_not_counted() -> None:
    sender = Sender((1.0, 1), (1.0, 1))
    paced = sender.paced()
    paced.recv(1)
    sender.now += 3600
    assert paced.recv(1) == b"x"


def test_pause_is_too_slow_and_stays_so() -> None:
    sender = Sender((60.0, None), (0.0, 1))
    paced = sender.paced()
    for _ in range(2):
        with pytest.raises(TooSlow):
            paced.recv(1)
    assert len(sender.pieces) == 1, "the refused request is not read on"
