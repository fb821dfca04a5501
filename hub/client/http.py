"""One HTTP request: pooled connections, time-outs, no redirects, bounded bodies, one kind of error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import IO, Self
from urllib.parse import urlsplit

import urllib3
from urllib3 import exceptions as broken
from urllib3.response import BaseHTTPResponse

from hub.client.answers import refusal
from hub.client.errors import ClientError, NoAnswer, Unreachable, printable
from hub.client.patience import Timing

MIB = 1024 * 1024
ANSWER_BYTES_MAX = 256 * MIB
"""Cap of a JSON answer; two million ids fit."""
REFUSAL_BYTES_MAX = 64 * 1024


class Http:
    """A pool of connections. Use as a context manager, or call `close`."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._pool = urllib3.PoolManager(
            num_pools=4, maxsize=8, retries=False, blocksize=MIB, headers={"User-Agent": "packhouse"}
        )

    def close(self) -> None:
        """Close all connections."""
        # `clear` alone leaves them open until the garbage collector comes by.
        for key in self._pool.pools.keys():  # noqa: SIM118 (urllib3's container refuses to be iterated)
            self._pool.pools[key].close()
        self._pool.clear()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections."""
        self.close()

    @contextmanager
    def open(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes | IO[bytes] | None = None,
        read_seconds: float | None = None,
    ) -> Iterator[BaseHTTPResponse]:
        """Send a request and give its answer with the body still unread, whatever its status.

        Raises NoAnswer when the connection fails or breaks, then or while the body is read; Unreachable when
        another try is of no use.
        """
        timeout = urllib3.Timeout(connect=self._timing.connect_seconds, read=read_seconds or self._timing.read_seconds)
        response: BaseHTTPResponse | None = None
        sent = {"User-Agent": "packhouse", "Accept-Encoding": "identity", **headers}
        try:
            response = self._pool.request(
                method, url, body=body, headers=sent, timeout=timeout,
                redirect=False, retries=False, preload_content=False,
            )  # fmt: skip
            yield response
        except broken.HTTPError as error:
            raise _translate(error, url) from None
        finally:
            if response is not None:
                # A connection whose answer was read to its end is back in the pool; any other ends here.
                response.close()

    def ask(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        read_seconds: float | None = None,
        secret: str | None = None,
    ) -> bytes:
        """Send a request and return the body of its 200 or 201 answer, an empty object for 204.

        Raises Refused for any other status; `secret` is cut out of whatever the server says.
        """
        with self.open(method, url, headers=headers, body=body, read_seconds=read_seconds) as response:
            if response.status not in {200, 201, 204}:
                raise read_refusal(response, secret)
            if response.status == 204:
                return b"{}"
            return _read_bounded(response, ANSWER_BYTES_MAX)


def read_refusal(response: BaseHTTPResponse, secret: str | None = None) -> ClientError:
    """Turn an answer that is no success into the error to raise."""
    if 300 <= response.status < 400:
        return Unreachable(
            f"The server answers with a redirect (HTTP {response.status}), which is not followed; "
            "use the repository's exact address."
        )
    body = b""
    for chunk in response.stream(REFUSAL_BYTES_MAX, decode_content=False):
        body += chunk
        if len(body) >= REFUSAL_BYTES_MAX:
            break
    if secret:
        body = body.replace(secret.encode(), b"[token]")
    content_type = response.headers.get("Content-Type", "")
    return refusal(response.status, content_type, body, retry_after_seconds(response))


def retry_after_seconds(response: BaseHTTPResponse) -> float | None:
    """Read `Retry-After`, seconds or a date; None when it is absent or unreadable."""
    value = response.headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        at = parsedate_to_datetime(value)
    except ValueError:
        return None
    moment = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def _read_bounded(response: BaseHTTPResponse, limit: int) -> bytes:
    body = bytearray()
    for chunk in response.stream(MIB, decode_content=False):
        body += chunk
        if len(body) > limit:
            raise Unreachable(f"The server's answer is longer than {limit} bytes.")
    return bytes(body)


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
        return Unreachable(f"The link to {host} cannot be read.")
    return NoAnswer(f"The connection to {host} broke; try again.")
