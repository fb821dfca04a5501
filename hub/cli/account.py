"""`packhouse login`, `logout`, `whoami`: the token that the commands send to a hub."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import click

from hub.cli.client_options import Access, client_options, credentials, reported, working_directory
from hub.client import workdir
from hub.client.address import Hub, parse_hub
from hub.client.api import Api
from hub.client.api_answers import Whoami
from hub.client.errors import BadInput, printable

TOKEN_CHARACTERS_MAX = 4096


@click.command()
@click.argument("url")
@click.option("--token-stdin", is_flag=True, help="Read the token from stdin, also when that is a terminal.")
@client_options
def login(url: str, access: Access, *, token_stdin: bool, as_json: bool, quiet: bool) -> None:
    """Keep a token for the hub at URL, the address of the hub or of a repository on it.

    The token is asked for without echo, or read from stdin when that is no terminal. It is tried, then kept in
    packhouse/credentials in the user's directory of configuration, which nobody else can read, and is sent to this
    hub only. The environment variable PACKHOUSE_TOKEN, where it is set, is used instead of it by all other
    commands.

    Exit codes: 0 done; 1 the hub does not accept the token; 2 wrong usage; 3 the hub cannot be reached.
    """
    with reported(as_json=as_json) as document:
        hub = parse_hub(url)
        token = _asked(hub, from_stdin=token_stdin)
        found = _ask(hub, token, insecure=access.insecure)
        credentials().save(hub.authority, token)
        document.update(asdict(found), hub=hub.authority)
        if not quiet and not as_json:
            click.echo(f"Logged in to {hub.authority} as {_text(found)}")


@click.command()
@click.argument("url")
@client_options
def logout(url: str, access: Access, *, as_json: bool, quiet: bool) -> None:
    """Forget the token for the hub at URL. The token itself stays good: its owner can revoke it on the hub.

    Exit codes: 0 done, also when there was none; 2 wrong usage.
    """
    del access
    with reported(as_json=as_json) as document:
        hub = parse_hub(url)
        removed = credentials().remove(hub.authority)
        document.update(hub=hub.authority, removed=removed)
        if not quiet and not as_json:
            click.echo(f"Logged out from {hub.authority}" if removed else f"Not logged in to {hub.authority}")


@click.command()
@click.argument("url", required=False)
@client_options
def whoami(url: str | None, access: Access, *, as_json: bool, quiet: bool) -> None:
    """Tell whose the token for the hub at URL is, by default the hub of the directory one is in.

    Exit codes: 0 done; 1 the hub does not accept the token; 2 wrong usage, or no token; 3 the hub cannot be
    reached.
    """
    with reported(as_json=as_json) as document:
        hub = parse_hub(url or workdir.opened(working_directory(Path())).url)
        token = access.token_for(hub)
        if token is None:
            raise BadInput(f"There is no token for {hub.authority}: `packhouse login {hub.origin}` keeps one.")
        found = _ask(hub, token, insecure=access.insecure)
        document.update(asdict(found), hub=hub.authority)
        if not quiet and not as_json:
            click.echo(_text(found))


def _ask(hub: Hub, token: str, *, insecure: bool) -> Whoami:
    with Api(hub, token, insecure=insecure) as api:
        return api.whoami()


def _asked(hub: Hub, *, from_stdin: bool) -> str:
    """Ask for the token; whoever sees the screen does not see it."""
    if not from_stdin and sys.stdin.isatty():
        text = click.prompt(f"Token for {hub.authority}", hide_input=True, err=True)
    else:
        text = sys.stdin.readline(TOKEN_CHARACTERS_MAX)
    token = str(text).strip()
    if not token:
        raise BadInput("No token was given.")
    return token


def _text(found: Whoami) -> str:
    until = f", until {found.expires_at}" if found.expires_at else ""
    label = f" «{found.label}»" if found.label else ""
    return printable(f"{found.name} (token{label}: {', '.join(found.scopes) or 'no scopes'}{until})")
