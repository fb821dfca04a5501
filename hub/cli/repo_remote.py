"""`packhouse repo show`, `visibility` and `list URL`: the repositories of a hub, asked by its API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

import click

from hub.cli.client_options import Access, client_options, reported
from hub.cli.database import show as show_rows
from hub.client.address import Address, parse_address, parse_hub
from hub.client.api import Api
from hub.client.api_answers import RepositoryInfo
from hub.client.errors import printable


@contextmanager
def asked(url: str, access: Access) -> Iterator[tuple[Api, Address]]:
    """Open the API of the hub that the repository at `url` is on."""
    address = parse_address(url)
    with Api(address, access.token_for(address), insecure=access.insecure) as api:
        yield api, address


@click.command()
@click.argument("url")
@client_options
def show(url: str, access: Access, *, as_json: bool, quiet: bool) -> None:
    """Tell what the repository at URL is: who may read it, its default branch, its domain.

    Exit codes: 0 done; 1 refused by the server; 2 wrong usage; 3 the hub cannot be reached.
    """
    with reported(as_json=as_json) as document:
        with asked(url, access) as (api, address):
            info = api.repository(address)
        document.update(asdict(info))
        if not as_json and not quiet:
            _say(info)


@click.command()
@click.argument("url")
@click.argument("visibility", metavar="public|private", type=click.Choice(["public", "private"]))
@client_options
def visibility(url: str, visibility: str, access: Access, *, as_json: bool, quiet: bool) -> None:
    """Let everybody read the repository at URL, or only its owner and those with a role.

    Exit codes: 0 done; 1 refused by the server; 2 wrong usage; 3 the hub cannot be reached.
    """
    with reported(as_json=as_json) as document:
        with asked(url, access) as (api, address):
            info = api.set_visibility(address, visibility)
        document.update(asdict(info))
        if not as_json and not quiet:
            _say(info)


def list_remote(url: str, access: Access, *, as_json: bool, quiet: bool) -> None:
    """List the repositories that one may read on the hub at `url`, or at an address on it."""
    with reported(as_json=as_json) as document:
        hub = parse_hub(url)
        with Api(hub, access.token_for(hub), insecure=access.insecure) as api:
            found = list(api.repositories())
        document["repositories"] = [asdict(info) for info in found]
        if not as_json and not quiet:
            rows = [
                {
                    "path": printable(f"{info.owner}/{info.name}"),
                    "visibility": printable(info.visibility),
                    "default branch": printable(info.default_branch or ""),
                    "url": printable(info.url),
                }
                for info in found
            ]
            show_rows(rows, as_json=False)


def _say(info: RepositoryInfo) -> None:
    click.echo(printable(f"{info.owner}/{info.name} is {info.visibility}"))
    click.echo(printable(f"default branch: {info.default_branch or 'the first one pushed'}; domain: {info.domain}"))
