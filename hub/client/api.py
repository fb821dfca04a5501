"""The hub's own interface below `/api`: who one is, and repositories to make."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from hub.client.address import Address, Hub
from hub.client.api_answers import RepositoryInfo, Whoami, parse_repository, parse_whoami
from hub.client.calls import Calls
from hub.client.patience import Timing


class Api:
    """Calls of one hub. A context manager. Every call may raise what `Calls.call` does."""

    def __init__(self, hub: Hub, token: str | None, timing: Timing | None = None, *, insecure: bool = False) -> None:
        """Open nothing yet. Raises BadInput for a token that may not go there."""
        self._calls = Calls(hub, token, timing, insecure=insecure)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections."""
        self._calls.close()

    def whoami(self) -> Whoami:
        """Ask whose the token is."""
        return parse_whoami(self._call("GET", "whoami"))

    def create_repository(self, address: Address, visibility: str, **wished: str | None) -> RepositoryInfo:
        """Make an empty repository; `wished` may have default_branch and domain."""
        asked = {"owner": address.owner, "name": address.slug, "visibility": visibility}
        more = {name: value for name, value in wished.items() if value is not None}
        return parse_repository(self._call("POST", "repositories", asked | more))

    def repository(self, address: Address) -> RepositoryInfo:
        """Ask for what a repository is."""
        return parse_repository(self._call("GET", f"repositories/{address.owner}/{address.slug}"))

    def set_visibility(self, address: Address, visibility: str) -> RepositoryInfo:
        """Make a repository public or private."""
        path = f"repositories/{address.owner}/{address.slug}"
        return parse_repository(self._call("PATCH", path, {"visibility": visibility}))

    def _call(self, method: str, path: str, payload: dict[str, Any] | None = None) -> dict[str, Any]:
        return self._calls.call(method, f"{self._calls.hub.origin}/api/{path}", payload)
