"""Fixtures of the client's tests: a scripted server, a clock that needs no time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hub.client.patience import Timing
from hub.client.transport import Remote
from tests.hub.client.scripted import ScriptedServer


class Clock:
    """Time that passes by sleeping only."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def timing(self, wait_seconds: float = 300.0) -> Timing:
        """No jitter: `chance` 0."""
        return Timing(
            wait_seconds=wait_seconds, connect_seconds=5, read_seconds=5,
            sleep=self.sleep, clock=lambda: self.now, chance=lambda: 0.0,
        )  # fmt: skip


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    scripted = ScriptedServer()
    yield scripted
    scripted.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def remote(server: ScriptedServer, clock: Clock) -> Iterator[Remote]:
    with Remote(server.url, "tok-secret-123", timing=clock.timing()) as remote:
        yield remote


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A directory to push, with what usually surprises: empty, same, nested, unicode, binary."""
    root = tmp_path / "work"
    (root / "src" / "deep").mkdir(parents=True)
    (root / "README").write_bytes(b"hello\n")
    (root / "empty").write_bytes(b"")
    (root / "same").write_bytes(b"hello\n")
    (root / "src" / "deep" / "a.bin").write_bytes(bytes(range(256)) * 300)
    (root / "src" / "gr\u00fc\u00dfe \u4f60.txt").write_text("unicode name", encoding="utf-8")
    return root
