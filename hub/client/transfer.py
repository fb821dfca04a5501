"""Moving one pack: a file up to a link, a link down into a file. Repeats and resumes by itself."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from urllib3.response import BaseHTTPResponse

from hub.client.answers import UploadLink
from hub.client.errors import ClientError, LinkRefused, NoAnswer, Refused, Unreachable, VerificationFailed
from hub.client.http import MIB, Http, read_refusal
from hub.client.patience import Patience
from hub.client.progress import Progress

LINK_GONE = frozenset({400, 401, 403, 404, 410})
"""What object storage answers for a link that has expired (400 or 403, by vendor) or leads nowhere."""
CONTENT_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19}|\*)")


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
            raise _link_error(response, "upload")
        for _ in response.stream(MIB, decode_content=False):
            pass


class Download:
    """A pack on its way into a file. `receive` may be called again, with a new link, after LinkRefused.

    What has arrived stays: a cut connection is continued by a range request where the server knows ranges.
    """

    def __init__(self, http: Http, path: Path, mpack_id: str, size: int, progress: Progress) -> None:
        self.mpack_id = mpack_id
        self._http = http
        self._path = path
        self._size = size
        self._progress = progress
        self._digest = hashlib.sha256()
        self._done = 0

    def receive(self, url: str, patience: Patience) -> None:
        """Fetch what is still missing and check the whole.

        Raises VerificationFailed when the bytes are not the promised ones, LinkRefused, Refused, Unreachable.
        """
        renewed_at = self._done
        with self._path.open("ab") as out:
            while self._done < self._size:
                try:
                    self._receive_once(url, out)
                except (NoAnswer, Refused) as error:
                    # Only real headway renews the patience, or a server could drip for ever.
                    if self._done >= renewed_at + MIB:
                        renewed_at = self._done
                        patience.renew()
                    patience.wait_or_raise(error)
        if self._digest.hexdigest() != self.mpack_id:
            raise VerificationFailed(
                f"The downloaded pack is not {self.mpack_id}: its bytes have another digest. Try again."
            )

    def _receive_once(self, url: str, out: IO[bytes]) -> None:
        headers = {"Range": f"bytes={self._done}-"} if self._done else {}
        with self._http.open("GET", url, headers=headers) as response:
            if response.status == 200:
                self._restart(out)
            elif not (response.status == 206 and self._continues(response)):
                raise _link_error(response, "download")
            for chunk in response.stream(MIB, decode_content=False):
                self._keep(chunk, out)
        if self._done < self._size:
            raise NoAnswer(f"The download ended after {self._done} of {self._size} bytes; try again.")

    def _restart(self, out: IO[bytes]) -> None:
        out.truncate(0)
        self._digest = hashlib.sha256()
        self._done = 0

    def _continues(self, response: BaseHTTPResponse) -> bool:
        match = CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
        return (
            self._done > 0 and match is not None and int(match[1]) == self._done and match[3] in {"*", str(self._size)}
        )

    def _keep(self, chunk: bytes, out: IO[bytes]) -> None:
        if self._done + len(chunk) > self._size:
            raise VerificationFailed(f"The server sends more than the {self._size} bytes that it promised.")
        out.write(chunk)
        self._digest.update(chunk)
        self._done += len(chunk)
        self._progress.at(self._done)


def _link_error(response: BaseHTTPResponse, what: str) -> ClientError:
    """Read why a link does not work.

    Object storage explains in XML and names its inside: then a short sentence of our own is of more use.
    """
    error = read_refusal(response)
    if not isinstance(error, Refused):
        return error
    if error.status in LINK_GONE:
        return LinkRefused(
            error.status, "LINK_REFUSED", f"The {what} link is no longer accepted (HTTP {error.status})."
        )
    if error.status < 400:
        return Unreachable(f"The {what} link answers HTTP {error.status}, which makes no sense there.")
    if response.headers.get("Content-Type", "").startswith(("application/json", "text/plain")):
        return error
    sentence = f"The {what} was refused (HTTP {error.status})."
    return Refused(error.status, error.code, sentence, retry_after=error.retry_after)
