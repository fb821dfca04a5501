"""Moving one pack down: a link into a file. Repeats and resumes by itself."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import IO

from hub.client.errors import NoAnswer, Refused, VerificationFailed
from hub.client.http import MIB, Http
from hub.client.links import link_error
from hub.client.patience import Patience
from hub.client.progress import Progress
from hub.client.ranges import RANGE_BYTES, NoRanges, Ranges, is_range


class Download:
    """A pack on its way into a file. `receive` may be called again, with a new link, after LinkRefused.

    A large pack comes in ranges over several connections, where that is wanted (`several`) and the server knows
    ranges. What has arrived stays: what was cut is continued by a range request.
    """

    def __init__(
        self, http: Http, path: Path, mpack_id: str, size: int, progress: Progress, *, several: bool = True
    ) -> None:
        self.mpack_id = mpack_id
        self._http = http
        self._path = path
        self._size = size
        self._progress = progress
        self._digest = hashlib.sha256()
        self._done = 0
        self._ranges = Ranges(http, path, size, progress) if several and size > RANGE_BYTES else None

    def receive(self, url: str, patience: Patience) -> None:
        """Fetch what is still missing and check the whole.

        Raises VerificationFailed when the bytes are not the promised ones, LinkRefused, Refused, Unreachable.
        """
        digest = ""
        if self._ranges is not None:
            try:
                digest = self._ranges.receive(url, patience)
            except NoRanges:
                self._ranges = None
                self._path.unlink()
        if self._ranges is None:
            digest = self._receive_as_one(url, patience)
        if digest != self.mpack_id:
            raise VerificationFailed(
                f"The downloaded pack is not {self.mpack_id}: its bytes have another digest. Try again."
            )

    def _receive_as_one(self, url: str, patience: Patience) -> str:
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
        return self._digest.hexdigest()

    def _receive_once(self, url: str, out: IO[bytes]) -> None:
        headers = {"Range": f"bytes={self._done}-"} if self._done else {}
        with self._http.open("GET", url, headers=headers) as response:
            if response.status == 200:
                self._restart(out)
            elif not (self._done and is_range(response, self._done, self._size, self._size)):
                raise link_error(response, "download")
            for chunk in response.stream(MIB):
                self._keep(chunk, out)
        if self._done < self._size:
            raise NoAnswer(f"The download ended after {self._done} of {self._size} bytes; try again.")

    def _restart(self, out: IO[bytes]) -> None:
        out.truncate(0)
        self._digest = hashlib.sha256()
        self._done = 0

    def _keep(self, chunk: bytes, out: IO[bytes]) -> None:
        if self._done + len(chunk) > self._size:
            raise VerificationFailed(f"The server sends more than the {self._size} bytes that it promised.")
        out.write(chunk)
        self._digest.update(chunk)
        self._done += len(chunk)
        self._progress.at(self._done)
