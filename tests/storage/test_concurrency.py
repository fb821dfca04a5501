"""Many threads at one key.

Not on moto, which has no locks: there an overwrite closes the file under a reader.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from storage import AlreadyExists, Store
from storage.s3 import PART_BYTES

THREADS = 16
READERS = 4
READS_MAX = 200
OVERWRITES = 12

pytestmark = pytest.mark.parametrize(
    "store",
    ["memory", "prefixed", "faulty", pytest.param("seaweedfs", marks=pytest.mark.integration)],
    indirect=True,
)


def race(store: Store, bodies: list[bytes]) -> list[bytes]:
    """Put all `bodies` to one key at once, each if absent; return those that were told they had won."""
    start = threading.Barrier(len(bodies))

    def put(body: bytes) -> bytes | None:
        start.wait(timeout=30)
        try:
            store.put("contended", body, if_absent=True)
        except AlreadyExists:
            return None
        return body

    with ThreadPoolExecutor(len(bodies)) as pool:
        return [won for won in pool.map(put, bodies) if won is not None]


def test_conditional_put_has_exactly_one_winner(store: Store) -> None:
    winners = race(store, [bytes([number]) * 100 for number in range(THREADS)])
    assert len(winners) == 1
    with store.get("contended") as body:
        assert b"".join(body) == winners[0]


def test_conditional_put_in_parts_leaves_one_whole_winner(store: Store) -> None:
    winners = race(store, [bytes([number]) * (PART_BYTES + 1) for number in range(3)])
    with store.get("contended") as body:
        assert b"".join(body) in winners


def test_reader_never_sees_a_mixture_of_two_versions(store: Store) -> None:
    versions = [letter * 512 * 1024 for letter in (b"A", b"B")]
    store.put("k", versions[0])
    written = threading.Event()
    started = threading.Barrier(READERS + 1)

    def overwrite() -> None:
        started.wait(timeout=30)
        try:
            for number in range(OVERWRITES):
                store.put("k", versions[number % 2])
        finally:
            written.set()

    def read() -> int:
        started.wait(timeout=30)
        for count in range(1, READS_MAX + 1):
            last = written.is_set()
            with store.get("k") as body:
                assert b"".join(body) in versions
            if last:
                return count
        return READS_MAX

    with ThreadPoolExecutor(READERS + 1) as pool:
        readers = [pool.submit(read) for _ in range(READERS)]
        pool.submit(overwrite).result()
        assert all(reader.result() >= 1 for reader in readers)


def test_threads_do_not_disturb_each_other(store: Store) -> None:
    def round_trip(number: int) -> bool:
        key, data = f"own/{number}", str(number).encode() * 1000
        store.put(key, data)
        with store.get(key) as body:
            return b"".join(body) == data

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(round_trip, range(40)))
    assert len(list(store.list("own/"))) == 40
