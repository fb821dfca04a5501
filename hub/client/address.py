"""The address of a repository: what is accepted, and where a token may travel."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from hub.client.errors import BadInput, Unreachable, printable


@dataclass(frozen=True, slots=True)
class Address:
    """`scheme://host[:port]/OWNER/SLUG`, without a trailing slash."""

    url: str
    scheme: str
    host: str
    owner: str
    slug: str

    @property
    def origin(self) -> str:
        """The hub: `scheme://host[:port]`."""
        return self.url.removesuffix(f"/{self.owner}/{self.slug}")

    @property
    def is_private_line(self) -> bool:
        """Whether nobody on the way can read along: https, or this very machine."""
        return self.scheme == "https" or is_loopback(self.host)


def parse_address(url: str) -> Address:
    """Read a repository's address. Raises BadInput that says what an address looks like."""
    shape = "a repository's address looks like https://hub.example.org/OWNER/REPOSITORY"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise BadInput(f"The address cannot be read: {shape}.") from None
    if parts.scheme not in {"http", "https"} or not host:
        raise BadInput(f"The address must begin with http:// or https:// and name a host: {shape}.")
    if parts.username is not None or parts.password is not None:
        raise BadInput("The address must not hold a user name or password; put the token in PACKHOUSE_TOKEN.")
    if parts.query or parts.fragment:
        raise BadInput(f"The address must not hold «?» or «#»: {shape}.")
    segments = parts.path.strip("/").split("/")
    if len(segments) != 2 or not all(segments) or any(segment in {".", ".."} for segment in segments):
        raise BadInput(f"The address must end in OWNER/REPOSITORY: {shape}.")
    if not url.isascii() or any(character.isspace() or not character.isprintable() for character in url):
        raise BadInput(f"The address must be plain ASCII without spaces: {shape}.")
    named = f"[{host}]" if ":" in host else host
    origin = f"{parts.scheme}://{named}" + (f":{port}" if port is not None else "")
    owner, slug = segments
    return Address(f"{origin}/{owner}/{slug}", parts.scheme, host, owner, slug)


def check_token(address: Address, token: str | None) -> str | None:
    """Return the token to send, None for an empty one.

    Raises BadInput for a token that is no header value, or that would travel readable over the network.
    """
    if not token:
        return None
    if not token.isascii() or any(not "!" <= character <= "~" for character in token):
        raise BadInput("The token in PACKHOUSE_TOKEN has a space or a control character in it; copy it again.")
    if not address.is_private_line:
        raise BadInput(
            f"The token is not sent to {printable(address.host)} over plain http, where others can read it; "
            "use https:// (or unset PACKHOUSE_TOKEN for a public repository)."
        )
    return token


def check_link(address: Address, url: str) -> str:
    """Return `url`, where the hub says that bytes are to be sent to or fetched from.

    Raises Unreachable when it is no http(s) URL, or leads from an https hub to plain http.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port
    except ValueError:
        raise Unreachable("The hub named a link that cannot be read.") from None
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
