"""Declared sizes that lie: refused in bounded memory and time."""

from __future__ import annotations

import hashlib
import io
import random
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

import pytest

from hub.errors import Invalid, TooLarge
from hub.pack.format import Limits
from hub.pack.verify import verify_pack
from hub.pack.writer import PackWriter
from tests.hub.pack.bombs import MIB, bombs
from tests.hub.pack.build import verify

ROOT = Path(__file__).parents[3]
REFUSALS = (Invalid, TooLarge)


@pytest.mark.parametrize("name", [name for name, _ in bombs()])
def test_bomb_is_refused_in_bounded_memory_and_time(name: str) -> None:
    bomb = dict(bombs())[name]
    tracemalloc.start()
    began = time.process_time()
    try:
        with pytest.raises(REFUSALS):
            verify(bomb)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # A record of 32 MiB is held as one, once as pieces and once joined.
    assert peak < (80 * MIB if "snapshot" in name or "commit" in name else 8 * MIB)
    assert time.process_time() - began < 10


def test_streamed_verification_stays_within_a_hard_limit() -> None:
    """All bombs, and an object of 256 MiB that is just what it claims to be, under a limit of the operating
    system.
    """
    program = """
import hashlib, io, resource, sys
from hub.errors import Invalid, TooLarge
from hub.pack.format import Limits
from hub.pack.verify import verify_pack
from tests.hub.pack.bombs import Kind, bombs, frames, single
MIB = 1 << 20
digest = hashlib.sha256()
for _ in range(256):
    digest.update(bytes(MIB))
frame = frames.windowed(256 * MIB, 20, *frames.zeros(256 * MIB))
good = single(Kind.OBJECT, 256 * MIB, frame, entity_id=digest.digest())
made = list(bombs())
with open("/proc/self/statm") as status:
    used = int(status.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 160 * MIB, used + 160 * MIB))
verify_pack(io.BytesIO(good), limits=Limits())
for name, bomb in made:
    try:
        verify_pack(io.BytesIO(bomb), limits=Limits(max_rows=100_000))
    except (Invalid, TooLarge):
        continue
    sys.exit(name)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr


def test_writing_and_verifying_a_large_object_takes_little_memory() -> None:
    class Long(io.RawIOBase):
        def __init__(self, length: int) -> None:
            self._left = length
            self._random = random.Random(1)

        def read(self, length: int = -1) -> bytes:
            taken = min(length, self._left)
            self._left -= taken
            return self._random.randbytes(taken // 2) + bytes(taken - taken // 2)

    length = 64 * MIB
    digest = hashlib.sha256()
    stream = Long(length)
    while chunk := stream.read(MIB):
        digest.update(chunk)
    with tempfile.TemporaryFile() as out:
        tracemalloc.start()
        try:
            writer = PackWriter(out)
            writer.add_object(digest.hexdigest(), Long(length), length)  # type: ignore[arg-type]
            writer.finish()
            verify_pack(out, limits=Limits())
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 16 * MIB


def test_every_bomb_reaches_what_it_is_for() -> None:
    """The seals of the bombs are right: none is refused for its footer or its digest."""
    for name, bomb in bombs():
        with pytest.raises(REFUSALS) as caught:
            verify(bomb)
        assert "damaged" not in caught.value.sentence, name
