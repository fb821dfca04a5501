"""The hub's own interface below `/api`: who one is, repositories, and who may use them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

from hub.client.address import Address, Hub
from hub.client.api_answers import (
    Collaborator,
    RepositoryInfo,
    Whoami,
    parse_collaborator,
    parse_page,
    parse_repository,
    parse_whoami,
)
from hub.client.calls import Calls
from hub.client.patience import Timing

Item = TypeVar("Item")
PAGE_ITEMS = 200


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
        return parse_repository(self._call("GET", _path(address)))

    def set_visibility(self, address: Address, visibility: str) -> RepositoryInfo:
        """Make a repository public or private."""
        return parse_repository(self._call("PATCH", _path(address), {"visibility": visibility}))

    def repositories(self) -> Iterator[RepositoryInfo]:
        """Ask for the repositories that one may read, by path."""
        return self._pages("repositories", "repositories", parse_repository)

    def collaborators(self, address: Address) -> Iterator[Collaborator]:
        """Ask who has a role in a repository, by name."""
        return self._pages(f"{_path(address)}/collaborators", "collaborators", parse_collaborator)

    def set_collaborator(self, address: Address, name: str, role: str) -> Collaborator:
        """Give somebody a role, in place of the one they have."""
        return parse_collaborator(self._call("PUT", _collaborator(address, name), {"role": role}))

    def remove_collaborator(self, address: Address, name: str) -> None:
        """Take somebody's role away."""
        self._call("DELETE", _collaborator(address, name))

    def _pages(self, path: str, name: str, parse: Callable[[dict[str, Any]], Item]) -> Iterator[Item]:
        after: str | None = None
        while True:
            more = "" if after is None else f"&after={quote(after, safe='')}"
            items, after = parse_page(self._call("GET", f"{path}?limit={PAGE_ITEMS}{more}"), name)
            yield from map(parse, items)
            if after is None:
                return

    def _call(self, method: str, path: str, payload: dict[str, Any] | None = None) -> dict[str, Any]:
        return self._calls.call(method, f"{self._calls.hub.origin}/api/{path}", payload)


def _path(address: Address) -> str:
    return f"repositories/{address.owner}/{address.slug}"


def _collaborator(address: Address, name: str) -> str:
    return f"{_path(address)}/collaborators/{quote(name, safe='')}"
