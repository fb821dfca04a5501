"""Moving one pack up: a file to a link. Repeats by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import IO

from hub.client.answers import UploadLink
from hub.client.errors import NoAnswer, Refused
from hub.client.http import MIB, Http
from hub.client.links import link_error
from hub.client.patience import Patience
from hub.client.progress import Progress


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
            _send_once(http, link, file, size, progress)
        except (NoAnswer, Refused) as error:
            patience.wait_or_raise(error)
        else:
            return


def _send_once(http: Http, link: UploadLink, file: IO[bytes], size: int, progress: Progress) -> None:
    headers: Mapping[str, str] = {**link.headers, "Content-Length": str(size)}
    body = CountedFile(file, progress.at)
    # urllib3 wants anything with `read`; its type says IO[bytes].
    with http.open("PUT", link.url, headers=headers, body=body) as response:  # type: ignore[arg-type]
        if response.status not in {200, 201, 204}:
            raise link_error(response, "upload")
        for _ in response.stream(MIB, decode_content=False):
            pass
