"""Connections to HTTP servers, kept open for the next request to the same server: urllib3, in our words for errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO
from urllib.parse import urlsplit

import urllib3
from urllib3 import exceptions as broken
from urllib3.response import BaseHTTPResponse

from hub.client.errors import ClientError, NoAnswer, Unreachable, printable

BLOCK_BYTES = 1024 * 1024
"""Read and sent at a time."""
SERVERS, THREADS = 4, 8
"""Servers whose connections are kept (the hub, its store), and connections to each."""


class Answer:
    """An answer whose body is still unread."""

    def __init__(self, response: BaseHTTPResponse) -> None:
        self._response = response

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers; `get` does not mind their case."""
        return self._response.headers

    def stream(self, size: int) -> Iterator[bytes]:
        """Read the body as it was sent, in pieces of at most `size` bytes. Raises NoAnswer when it breaks off."""
        return self._response.stream(size, decode_content=False)


class Connections:
    """Connections by server, for several threads; each has one to itself while it asks."""

    def __init__(self, connect_seconds: float) -> None:
        """Open nothing yet."""
        self._connect_seconds = connect_seconds
        self._pool = urllib3.PoolManager(num_pools=SERVERS, maxsize=THREADS, retries=False, blocksize=BLOCK_BYTES)

    def close(self) -> None:
        """Close those that nobody uses."""
        # `clear` alone leaves them open until the garbage collector comes by.
        for key in self._pool.pools.keys():  # noqa: SIM118 (urllib3's container refuses to be iterated)
            self._pool.pools[key].close()
        self._pool.clear()

    @contextmanager
    def ask(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | IO[bytes] | None, read_seconds: float
    ) -> Iterator[Answer]:
        """Send a request to an http(s) URL, and give its answer.

        The connection is used again if the answer was read to its end, and the server keeps it. Raises NoAnswer when
        there is no answer, then or while the body is read; Unreachable when another try is of no use.
        """
        timeout = urllib3.Timeout(connect=self._connect_seconds, read=read_seconds)
        response: BaseHTTPResponse | None = None
        try:
            response = self._pool.request(
                method, url, body=body, headers=headers, timeout=timeout,
                redirect=False, retries=False, preload_content=False,
            )  # fmt: skip
            yield Answer(response)
        except broken.HTTPError as error:
            raise _translate(error, url) from None
        finally:
            if response is not None:
                # A connection whose answer was read to its end is back in the pool; any other ends here.
                response.close()


def _translate(error: broken.HTTPError, url: str) -> ClientError:
    # Never the whole URL: the query of a link holds its signature.
    host = printable(urlsplit(url).hostname or "the server")
    if isinstance(error, broken.SSLError):
        return Unreachable(f"No safe connection to {host}: its certificate or TLS version is not accepted.")
    if isinstance(error, broken.NameResolutionError):
        return NoAnswer(f"No answer from {host}: the name is not known; check the address.")
    if isinstance(error, broken.NewConnectionError):
        return NoAnswer(f"No answer from {host}: it accepts no connection; is the hub running there?")
    if isinstance(error, broken.TimeoutError):
        return NoAnswer(f"No answer from {host} in time; try again later.")
    if isinstance(error, broken.LocationValueError):
        return NoAnswer(f"No answer from {host}: the name is not known; check the address.")
    return NoAnswer(f"The connection to {host} broke; try again.")
