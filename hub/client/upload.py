"""Moving one pack up: a file to a link, or its parts to theirs, several at a time. Repeats by itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import IO

from hub.client.errors import NoAnswer, Refused
from hub.client.http import MIB, Http
from hub.client.links import link_error
from hub.client.patience import Patience
from hub.client.progress import Progress
from hub.client.upload_answers import PartsToSend, PartToSend, UploadLink

PARTS_AT_ONCE = 4
"""Requests under way at a time; each has its part in memory."""


class CountedFile:
    """A file as a request's body: reports how far it has been read."""

    def __init__(self, file: IO[bytes], at: Callable[[int], None]) -> None:
        self._file = file
        self._at = at

    def read(self, size: int = -1) -> bytes:
        """Read at most `size` bytes."""
        chunk = self._file.read(size)
        self._at(self._file.tell())
        return chunk


def send_file(http: Http, link: UploadLink, file: IO[bytes], size: int, patience: Patience, progress: Progress) -> None:
    """PUT the `size` bytes of `file` to `link`.

    Raises LinkRefused when the link is no longer good, Refused, Unreachable.
    """
    while True:
        file.seek(0)
        try:
            # urllib3 takes anything with `read`; the type says IO[bytes].
            _send_once(http, link, CountedFile(file, progress.at), size)  # type: ignore[arg-type]
        except (NoAnswer, Refused) as error:
            patience.wait_or_raise(error)
        else:
            return


def _send_once(http: Http, link: UploadLink, body: IO[bytes] | bytes, size: int) -> None:
    headers: Mapping[str, str] = {**link.headers, "Content-Length": str(size)}
    with http.open("PUT", link.url, headers=headers, body=body) as response:
        if response.status not in {200, 201, 204}:
            raise link_error(response, "upload")
        for _ in response.stream(MIB):
            pass


class PartSender:
    """Sends parts of one file of `size` bytes, PARTS_AT_ONCE at a time. `patience` makes the patience for one part."""

    def __init__(
        self, http: Http, file: IO[bytes], size: int, patience: Callable[[], Patience], progress: Progress
    ) -> None:
        self._http = http
        self._file = file
        self._size = size
        self._patience = patience
        self._progress = progress
        self._lock = threading.Lock()
        self._done = 0

    def send(self, upload: PartsToSend) -> None:
        """PUT the parts. What was sent before an error has arrived. Raises LinkRefused, Refused, Unreachable."""
        self._done = min(upload.arrived * upload.part_size, self._size)
        self._progress.at(self._done)
        with ThreadPoolExecutor(PARTS_AT_ONCE) as pool:
            under_way = [pool.submit(self._send_part, part) for part in upload.parts]
            try:
                for sent in under_way:
                    sent.result()
            finally:
                pool.shutdown(cancel_futures=True)

    def _send_part(self, part: PartToSend) -> None:
        with self._lock:
            self._file.seek(part.offset)
            content = self._file.read(part.size)
        patience = self._patience()
        while True:
            try:
                _send_once(self._http, part.link, content, part.size)
            except (NoAnswer, Refused) as error:
                patience.wait_or_raise(error)
            else:
                break
        with self._lock:
            self._done += part.size
            self._progress.at(self._done)
