"""`packhouse up`, which `make run` calls: everything on this machine, shown to work, then served until
Ctrl-C.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

import click
import psycopg
from sqlalchemy.exc import SQLAlchemyError

from hub.cli.example import OPERATOR, REPOSITORY, ExampleFailed, Outcome, operator_token, run_example
from hub.cli.migrate import upgrade
from hub.client.errors import ClientError
from hub.embedded.identity import NoIdentity
from hub.embedded.objectstore import NoObjectStore
from hub.embedded.ports import NoFreePort
from hub.embedded.postgres import NoPostgres
from hub.embedded.processes import ChildFailed
from hub.embedded.state import State, StateError
from hub.embedded.supervisor import Supervisor
from hub.settings import SettingsError, environment
from storage import StorageError

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXPECTED = (
    *(ChildFailed, ClientError, ExampleFailed, NoFreePort, NoIdentity, NoObjectStore, NoPostgres, StateError),
    *(SettingsError, SQLAlchemyError, StorageError, psycopg.Error),
)
"""What ends `up` with a sentence; anything else is a defect and shows its traceback."""


class Stopped(BaseException):
    """Somebody asked us to end, by Ctrl-C or a signal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _raise_stopped(number: int, frame: FrameType | None) -> None:
    del frame
    raise Stopped(number)


@click.command()
@click.option("--once", is_flag=True, envvar="PACKHOUSE_ONCE", help="End after the example has come back.")
@click.option(
    "--state",
    "directory",
    envvar="PACKHOUSE_STATE",
    default=".packhouse",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where all data, logs and secrets are kept.",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help="Port to serve on; by default that of the last run, 8000 or any free one.",
)
def up(directory: Path, port: int | None, *, once: bool) -> None:
    """Start Postgres, an S3 server, the hub and a worker; push and clone an example; serve until Ctrl-C.

    DATABASE_URL replaces the embedded Postgres, the S3_… variables replace the S3 server. Exit status: 0
    after Ctrl-C, or with --once after the example has come back unchanged; 1 for any failure, with the
    reason.
    """
    for number in SIGNALS:
        signal.signal(number, _raise_stopped)
    served = False
    supervisor: Supervisor | None = None
    state: State | None = None
    try:
        state = State(directory)
        supervisor = Supervisor(state, environment(), port=port)
        _start(supervisor)
        outcome, token = _show(supervisor)
        _report(outcome)
        if not once:
            served = True
            _explain(supervisor, supervisor.write_environment({"PACKHOUSE_TOKEN": token}))
            supervisor.watch()
    except Stopped as stopped:
        _say(f"\nStopping ({signal.Signals(stopped.number).name}) …")
        if not served:
            _fail(f"stopped by {signal.Signals(stopped.number).name} before the example had come back")
    except EXPECTED as error:
        _fail(str(error))
    finally:
        # From here on nothing may interrupt the clean-up, which is bounded by itself.
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        if supervisor is not None:
            supervisor.stop()
        if state is not None:
            state.close()


def _start(supervisor: Supervisor) -> None:
    began = time.monotonic()
    supervisor.start_servers()
    supervisor.migrate(upgrade)
    supervisor.start_hub()
    supervisor.wait_healthy()
    parts = ("Postgres" if supervisor.postgres else "your Postgres", "S3" if supervisor.s3 else "your S3")
    _say(f"Started in {time.monotonic() - began:.1f} s: {parts[0]}, {parts[1]}, web, worker.")


def _show(supervisor: Supervisor) -> tuple[Outcome, str]:
    url = f"{supervisor.url}/{REPOSITORY}"
    try:
        token = operator_token(supervisor.state, supervisor.settings.database_url, url)
        return run_example(supervisor.state.folder("example"), url, token), token
    except (ClientError, ExampleFailed):
        supervisor.check()  # a process that has ended is the better reason
        raise


def _report(outcome: Outcome) -> None:
    done = "pushed, indexed, prebuilt" if outcome.pushed else "already there"
    _say(
        f"Example {REPOSITORY}: {outcome.files} files, {outcome.size:,} bytes, commit {outcome.commit_id[:12]} "
        f"{done} ({outcome.push_seconds:.1f} s), cloned ({outcome.clone_seconds:.1f} s), equal byte for byte."
    )


def _explain(supervisor: Supervisor, environment_file: Path) -> None:
    url, shown = supervisor.url, _shown(environment_file)
    _say(f"\nThe hub is at   {url}")
    _say(f"Its logs are in {_shown(supervisor.state.folder('log'))}/\n")
    _say("Push a directory of your own, in another terminal, from this directory:\n")
    _say(f"  . {shown}        # PACKHOUSE_TOKEN and the rest of what an operator needs")
    _say(f"  packhouse repo create {OPERATOR}/mine")
    _say(f'  packhouse push DIRECTORY {url}/{OPERATOR}/mine -m "First"')
    _say(f"  packhouse clone {url}/{OPERATOR}/mine COPY")
    _say("\nCtrl-C stops everything.")


def _shown(path: Path) -> str:
    """Return the path as one types it here; `./` in front, for the shell's `.` looks up bare names on the
    PATH.
    """
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else f"./{relative}"


def _say(line: str) -> None:
    click.echo(line)
    sys.stdout.flush()


def _fail(reason: str) -> None:
    click.echo(f"Error: {reason}", err=True)
    raise click.exceptions.Exit(1)
