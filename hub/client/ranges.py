"""Fetching a large pack over several connections, a range at a time."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from hub.client.connections import Answer
from hub.client.errors import NoAnswer, Refused, VerificationFailed
from hub.client.http import MIB, Http
from hub.client.links import link_error
from hub.client.patience import Patience
from hub.client.progress import Progress

if TYPE_CHECKING:
    from concurrent.futures import Future

RANGE_BYTES = 8 * MIB
"""The least that is asked for at once. Large packs come in larger ranges: each costs the server some milliseconds."""
RANGE_BYTES_MAX = 64 * MIB
CONNECTIONS = 4
RANGES = 2 * CONNECTIONS
SHOW_SECONDS = 0.1
CONTENT_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19}|\*)")


class NoRanges(Exception):
    """The server answers a request for a range with the whole."""


def is_range(response: Answer, start: int, end: int, size: int) -> bool:
    """Whether the answer is just the bytes from `start` up to `end`, not included, of `size`."""
    match = CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    return (
        response.status == 206
        and match is not None
        and (int(match[1]), int(match[2]) + 1) == (start, end)
        and match[3] in {"*", str(size)}
    )


class Ranges:
    """A pack of `size` bytes on its way into `path`. `receive` may be called again, with a new link.

    What has arrived stays: a range that broke is continued where it broke. The digest follows what has arrived
    without a gap.
    """

    def __init__(self, http: Http, path: Path, size: int, progress: Progress) -> None:
        """Fetch nothing yet."""
        self._http = http
        self._path = path
        self._size = size
        self._progress = progress
        self._digest = hashlib.sha256()
        self._hashed = 0
        self._range_bytes = max(RANGE_BYTES, min(size // RANGES, RANGE_BYTES_MAX))
        self._arrived = [0] * -(-size // self._range_bytes)
        self._stopped = threading.Event()

    def receive(self, url: str, patience: Patience) -> str:
        """Fetch what is still missing; return the digest of the whole.

        Raises NoRanges, LinkRefused, Refused, Unreachable, VerificationFailed for more bytes than promised.
        """
        from concurrent.futures import ThreadPoolExecutor

        self._stopped.clear()
        renewed_at = sum(self._arrived)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        pool = ThreadPoolExecutor(CONNECTIONS)
        try:
            waiting = deque(
                (number, pool.submit(self._fetch, url, number, descriptor))
                for number in range(self._hashed // self._range_bytes, len(self._arrived))
            )
            while waiting:
                number, fetching = waiting.popleft()
                try:
                    self._await(fetching, descriptor)
                except (NoAnswer, Refused) as error:
                    # Only real headway renews the patience, or a server could drip for ever.
                    if sum(self._arrived) >= renewed_at + MIB:
                        renewed_at = sum(self._arrived)
                        patience.renew()
                    patience.wait_or_raise(error)
                    # Ranges that broke meanwhile broke together: that is one failure, and they begin again together.
                    waiting.appendleft((number, fetching))
                    for place, (again, ended) in enumerate(waiting):
                        if ended.done() and ended.exception() is not None:
                            waiting[place] = again, pool.submit(self._fetch, url, again, descriptor)
                else:
                    self._hash(descriptor)
        finally:
            self._stopped.set()
            pool.shutdown(wait=True, cancel_futures=True)
            os.close(descriptor)
        return self._digest.hexdigest()

    def _await(self, fetching: Future[None], descriptor: int) -> None:
        while True:
            try:
                fetching.result(SHOW_SECONDS)
            except TimeoutError:
                self._hash(descriptor)
            else:
                return

    def _hash(self, descriptor: int) -> None:
        """Let the digest follow to the first gap."""
        while self._hashed < self._size:
            number = self._hashed // self._range_bytes
            arrived = self._bounds(number)[0] + self._arrived[number] - self._hashed
            if arrived == 0:
                break
            piece = os.pread(descriptor, min(MIB, arrived), self._hashed)
            self._digest.update(piece)
            self._hashed += len(piece)
        self._progress.at(sum(self._arrived))

    def _fetch(self, url: str, number: int, descriptor: int) -> None:
        first, end = self._bounds(number)
        start = first + self._arrived[number]
        if start == end:
            return
        with self._http.open("GET", url, headers={"Range": f"bytes={start}-{end - 1}"}) as response:
            if response.status == 200:
                raise NoRanges
            if not is_range(response, start, end, self._size):
                raise link_error(response, "download")
            for chunk in response.stream(MIB):
                if start + len(chunk) > end:
                    raise VerificationFailed("The server sends more bytes than it was asked for.")
                os.pwrite(descriptor, chunk, start)
                start += len(chunk)
                self._arrived[number] += len(chunk)
                if self._stopped.is_set():
                    return
        if start < end:
            raise NoAnswer(f"The download ended at {start} of {self._size} bytes; try again.")

    def _bounds(self, number: int) -> tuple[int, int]:
        return number * self._range_bytes, min(self._size, (number + 1) * self._range_bytes)
