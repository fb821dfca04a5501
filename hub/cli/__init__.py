"""`packhouse`: the command line. Each command lives in its own module, imported when it is called."""

from __future__ import annotations

import importlib
import sys
from gc import freeze  # by name: the module `hub.cli.gc`, once imported, is the `gc` of this one

import click

from hub.settings import SettingsError

COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("hub.cli.up:up", "Start everything on this machine, push and clone an example, serve until Ctrl-C."),
    "serve": ("hub.cli.serve:serve", "Serve the hub over HTTP (gunicorn)."),
    "worker": ("hub.cli.queue:worker", "Run the jobs: index pushed packs, prebuild clones."),
    "sweep": ("hub.cli.queue:sweep", "Put back the jobs of workers that died."),
    "jobs": ("hub.cli.queue:jobs", "List, explain, retry, cancel, follow, verify and purge jobs."),
    "queues": ("hub.cli.queue:queues", "List, pause and resume queues."),
    "schedules": ("hub.cli.queue:schedules", "List what runs periodically, and when."),
    "migrate": ("hub.cli.migrate:migrate", "Bring the database to the newest schema."),
    "gc": ("hub.cli.gc:gc", "Delete stored bytes that nothing names any more."),
    "fsck": ("hub.cli.fsck:fsck", "Prove that everything is there and right; find and mend what is not."),
    "user": ("hub.cli.user:user", "Manage those who may use the hub."),
    "token": ("hub.cli.token:token", "Create and revoke API tokens."),
    "repo": ("hub.cli.repo:repo", "Create, list and delete repositories; say who may use them."),
    "login": ("hub.cli.account:login", "Keep a token for a hub."),
    "logout": ("hub.cli.account:logout", "Forget the token for a hub."),
    "whoami": ("hub.cli.account:whoami", "Tell whose the token for a hub is."),
    "push": ("hub.cli.push:push", "Push a directory to a repository."),
    "clone": ("hub.cli.clone:clone", "Clone a repository into a directory."),
    "pull": ("hub.cli.pull:pull", "Bring the files of a clone to what the hub has; no change of yours is lost."),
    "fetch": ("hub.cli.fetch:fetch", "Bring what the branches of the hub have gained; no file is touched."),
    "log": ("hub.cli.log:log", "Show the history of a branch."),
    "ls-remote": ("hub.cli.ls_remote:ls_remote", "List the branches of a repository on a hub."),
}
"""Name → where the command is, and what it does. The sentence is here so that `--help` imports nothing."""


class LazyGroup(click.Group):
    """A group that imports a command when it is called: the client must not wait for the server's modules."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands in the order of the table."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command `cmd_name`; None when there is none."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name][0].split(":")
        command = getattr(importlib.import_module(module), name)
        if not isinstance(command, click.Command):
            raise TypeError(f"{module}:{name} is no command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


@click.group(cls=LazyGroup)
@click.version_option(package_name="packhouse")
def packhouse() -> None:
    """Packhouse: a self-hosted hub for content-addressed repositories."""


def main() -> None:
    """Run the command line. A wrong setting ends it with a sentence and status 2."""
    try:
        packhouse.main(prog_name="packhouse")
    except SettingsError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(2)
    finally:
        freeze()  # the process ends: looking through all that it has imported for garbage would take 10 ms
