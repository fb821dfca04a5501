"""One HTTP request: kept connections, time-outs, no redirects, bounded bodies, one kind of error."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import IO, Self

from hub.client.answers import refusal
from hub.client.connections import Answer, Connections
from hub.client.errors import ClientError, Unreachable
from hub.client.patience import Timing

MIB = 1024 * 1024
ANSWER_BYTES_MAX = 256 * MIB
"""Cap of a JSON answer; two million ids fit."""
REFUSAL_BYTES_MAX = 64 * 1024


class Http:
    """Requests over kept connections. Use as a context manager, or call `close`."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._connections = Connections(timing.connect_seconds)

    def close(self) -> None:
        """Close all connections."""
        self._connections.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections."""
        self.close()

    def open(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes | IO[bytes] | None = None,
        read_seconds: float | None = None,
    ) -> AbstractContextManager[Answer]:
        """Send a request and give its answer with the body still unread, whatever its status.

        Raises NoAnswer when the connection fails or breaks, then or while the body is read; Unreachable when
        another try is of no use.
        """
        sent = {"User-Agent": "packhouse", "Accept-Encoding": "identity", **headers}
        return self._connections.ask(method, url, sent, body, read_seconds or self._timing.read_seconds)

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


def read_refusal(response: Answer, secret: str | None = None) -> ClientError:
    """Turn an answer that is no success into the error to raise."""
    if 300 <= response.status < 400:
        return Unreachable(
            f"The server answers with a redirect (HTTP {response.status}), which is not followed; "
            "use the repository's exact address."
        )
    body = b""
    for chunk in response.stream(REFUSAL_BYTES_MAX):
        body += chunk
        if len(body) >= REFUSAL_BYTES_MAX:
            break
    if secret:
        body = body.replace(secret.encode(), b"[token]")
    content_type = response.headers.get("Content-Type", "")
    return refusal(response.status, content_type, body, retry_after_seconds(response))


def retry_after_seconds(response: Answer) -> float | None:
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


def _read_bounded(response: Answer, limit: int) -> bytes:
    body = bytearray()
    for chunk in response.stream(MIB):
        body += chunk
        if len(body) > limit:
            raise Unreachable(f"The server's answer is longer than {limit} bytes.")
    return bytes(body)
