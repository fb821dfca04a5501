"""Calls of the hub's JSON interface: one token, repeated while that may help, answers as JSON objects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from hub.client import answers
from hub.client.address import Hub, check_token
from hub.client.errors import ClientError, NoAnswer, NotReady, Refused
from hub.client.http import Http
from hub.client.patience import Patience, Timing
from hub.client.progress import Progress, Silent


class Calls:
    """Calls of one hub. A context manager; `close` ends its connections.

    Every call may raise Refused (the hub's own sentence and status), NotReady (a Refused: the wait was longer
    than `timing` allows) and Unreachable. Calls are repeated after a broken connection, 429, 502, 503 and
    504, within `timing`. The token goes to `hub` only, and into no message.
    """

    def __init__(
        self,
        hub: Hub,
        token: str | None,
        timing: Timing | None = None,
        progress: Progress | None = None,
        *,
        insecure: bool = False,
    ) -> None:
        """Open nothing yet. Raises BadInput for a token that may not go there."""
        self.hub = hub
        self.timing = timing or Timing()
        self.progress = progress or Silent()
        self.http = Http(self.timing)
        self._token = check_token(hub, token, insecure=insecure)

    def close(self) -> None:
        """Close all connections."""
        self.http.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections."""
        self.close()

    def call(
        self,
        method: str,
        url: str,
        payload: Mapping[str, Any] | bytes | None = None,
        *,
        read_seconds: float | None = None,
    ) -> dict[str, Any]:
        """Ask `url`, which must lie at the hub; return the answer's JSON object. A payload of bytes is a pack."""
        headers = {"Accept": "application/json"}
        body = payload if isinstance(payload, bytes) else None
        if body is not None:
            headers["Content-Type"] = "application/x-mpack"
        elif payload is not None:
            headers["Content-Type"] = "application/json"
            body = json.dumps(payload, ensure_ascii=False).encode()
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        patience = self.patience()
        while True:
            try:
                answer = self.http.ask(
                    method, url, headers=headers, body=body, read_seconds=read_seconds, secret=self._token
                )
            except (NoAnswer, Refused) as error:
                patience.wait_or_raise(error)
            else:
                return answers.decode(answer)

    def patience(self) -> Patience:
        """Return what counts the failures of one call and shows its waits."""
        return Patience(self.timing, self._show_wait)

    def _show_wait(self, error: ClientError, seconds: float) -> None:
        why = "; ".join(str(job) for job in error.why) if isinstance(error, NotReady) else ""
        self.progress.waiting(f"waiting {seconds:.0f} s: {why or error.sentence}")
