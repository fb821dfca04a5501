"""`python -m tasks --app module:attribute …`: the command line without any application around it."""

from __future__ import annotations

import importlib

import click

from tasks.app import App
from tasks.cli import commands


def find_app(path: str) -> App:
    """Import the app named by `module:attribute`. Raises click.UsageError."""
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise click.UsageError(f"--app {path!r}: write module:attribute, e.g. myproject.work:app")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise click.UsageError(f"--app {path!r}: there is no module {error.name!r} on the import path") from None
    app = getattr(module, attribute, None)
    if not isinstance(app, App):
        raise click.UsageError(f"--app {path!r}: {attribute!r} of {module_name} is no tasks.App")
    return app


@click.group(help="Run and look at the jobs of a tasks.App.")
@click.option(
    "--app",
    "path",
    required=True,
    metavar="MODULE:ATTRIBUTE",
    help="Where the app is, e.g. myproject.work:app.",
)
@click.pass_context
def main(context: click.Context, path: str) -> None:
    """Remember the app's place; it is imported by the command that needs it."""
    context.obj = path


def _load() -> App:
    return find_app(click.get_current_context().find_root().obj)


for _command in commands(_load):
    main.add_command(_command)

if __name__ == "__main__":
    main(prog_name="python -m tasks")
