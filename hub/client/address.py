"""The address of a repository: what is accepted, and where a token may travel."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from hub.client.errors import BadInput, Unreachable, printable

DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Hub:
    """A hub, `scheme://host[:port]`. `port` is None where the address names none."""

    scheme: str
    host: str
    port: int | None

    @property
    def origin(self) -> str:
        """The hub's own address, without a trailing slash."""
        return f"{self.scheme}://{self._named}" + (f":{self.port}" if self.port is not None else "")

    @property
    def authority(self) -> str:
        """`host[:port]`, the port only where it is not that of the scheme: what a token belongs to."""
        usual = self.port in {None, DEFAULT_PORTS[self.scheme]}
        return self._named if usual else f"{self._named}:{self.port}"

    @property
    def is_private_line(self) -> bool:
        """Whether nobody on the way can read along: https, or this very machine."""
        return self.scheme == "https" or is_loopback(self.host)

    @property
    def _named(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


@dataclass(frozen=True, slots=True)
class Address(Hub):
    """A repository of a hub, `scheme://host[:port]/OWNER/SLUG`."""

    owner: str
    slug: str

    @property
    def url(self) -> str:
        """The address in one spelling, without a trailing slash."""
        return f"{self.origin}/{self.owner}/{self.slug}"


def parse_address(url: str) -> Address:
    """Read a repository's address. Raises BadInput that says what an address looks like."""
    shape = "a repository's address looks like https://hub.example.org/OWNER/REPOSITORY"
    hub, path = _parse(url, shape)
    segments = path.split("/")
    if len(segments) != 2 or not all(segments) or any(segment in {".", ".."} for segment in segments):
        raise BadInput(f"The address must end in OWNER/REPOSITORY: {shape}.")
    return Address(hub.scheme, hub.host, hub.port, *segments)


def parse_hub(url: str) -> Hub:
    """Read the address of a hub, or of anything on it. Raises BadInput that says what an address looks like."""
    return _parse(url, "a hub's address looks like https://hub.example.org")[0]


def _parse(url: str, shape: str) -> tuple[Hub, str]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise BadInput(f"The address cannot be read: {shape}.") from None
    if parts.scheme not in DEFAULT_PORTS or not host:
        raise BadInput(f"The address must begin with http:// or https:// and name a host: {shape}.")
    if parts.username is not None or parts.password is not None:
        raise BadInput("The address must not hold a user name or password; use `packhouse login` or PACKHOUSE_TOKEN.")
    if parts.query or parts.fragment:
        raise BadInput(f"The address must not hold «?» or «#»: {shape}.")
    if not url.isascii() or any(character.isspace() or not character.isprintable() for character in url):
        raise BadInput(f"The address must be plain ASCII without spaces: {shape}.")
    return Hub(parts.scheme, host, port), parts.path.strip("/")


def check_token(hub: Hub, token: str | None, *, insecure: bool = False) -> str | None:
    """Return the token to send, None for an empty one.

    Raises BadInput for a token that is no header value, or that would travel readable over the network, unless
    `insecure` allows just that.
    """
    if not token:
        return None
    if not token.isascii() or any(not "!" <= character <= "~" for character in token):
        raise BadInput(
            "The token, of PACKHOUSE_TOKEN or `packhouse login`, has a space or a control character: copy it again."
        )
    if not hub.is_private_line and not insecure:
        raise BadInput(
            f"The token is not sent to {printable(hub.host)} over plain http, where others can read it; "
            "use https://, or --insecure where nobody else is on the line."
        )
    return token


def check_link(address: Hub, url: str) -> str:
    """Return `url`, where the hub says that bytes are to be sent to or fetched from.

    Raises Unreachable when it is no http(s) URL, or leads from an https hub to plain http.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port
        readable = all("!" <= character <= "~" for character in url)
    except ValueError:
        readable = False
    if not readable:
        raise Unreachable("The hub named a link that cannot be read.")
    if parts.scheme not in {"http", "https"} or not host or parts.username is not None:
        raise Unreachable("The hub named a link that is no http:// or https:// URL.")
    if address.scheme == "https" and parts.scheme == "http":
        raise Unreachable(
            f"The hub is reached by https, but its link leads to plain http at {printable(host)}; "
            "its operator must set S3_PUBLIC_ENDPOINT_URL to an https address."
        )
    return url


def is_loopback(host: str) -> bool:
    """Whether `host` is this very machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
