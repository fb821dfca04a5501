"""The real servers of a test run: one Postgres and one S3 server in a temporary directory."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hub.embedded.postgres import THROWAWAY, Postgres
from hub.embedded.state import State, StateError

if TYPE_CHECKING:
    from hub.embedded.objectstore import ObjectStore

PREFIX = "packhouse-test-"
ABANDONED_SECONDS = 300


class Servers:
    """The servers of this run, each started when it is first asked for.

    They end with this process: by `stop`, or by the kernel when it is killed.
    """

    def __init__(self) -> None:
        self._state: State | None = None
        self._postgres: Postgres | None = None
        self._s3: ObjectStore | None = None

    @property
    def state(self) -> State:
        if self._state is None:
            remove_abandoned(PREFIX)
            self._state = State(Path(tempfile.mkdtemp(prefix=PREFIX)))
        return self._state

    def launch(self) -> None:
        """Start both, side by side; do not wait for them."""
        self._launch_s3()
        if not os.environ.get("TEST_DATABASE_URL"):
            self._launch_postgres()

    def _launch_s3(self) -> ObjectStore:
        from hub.embedded.objectstore import ObjectStore  # boto3 is slow to import: only where S3 is used

        if self._s3 is None:
            self._s3 = ObjectStore(self.state)
            self._s3.launch()
        return self._s3

    def _launch_postgres(self) -> Postgres:
        if self._postgres is None:
            self._postgres = Postgres(self.state, options=THROWAWAY)
            self._postgres.launch()
        return self._postgres

    def postgres_url(self) -> str:
        """A superuser's URL of a server to make databases in."""
        return os.environ.get("TEST_DATABASE_URL") or self._launch_postgres().wait_ready()

    def s3(self) -> dict[str, str]:
        """The server's fields of S3Settings, as plain values that xdist can carry."""
        server = self._launch_s3()
        server.wait_ready()
        found = server.settings("none")
        return {"endpoint_url": found.endpoint_url, "access_key": found.access_key, "secret_key": found.secret_key}

    def stop(self) -> None:
        if self._s3 is not None:
            self._s3.stop()
        if self._postgres is not None:
            self._postgres.discard()
        if self._state is not None:
            self._state.close()
            shutil.rmtree(self._state.directory)


def remove_abandoned(prefix: str) -> None:
    """Remove the state directories of this name that killed runs left behind. That of a living run is locked."""
    for directory in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        try:
            made_at = directory.stat().st_mtime
        except FileNotFoundError:
            continue  # another run that starts at this moment has removed it
        # The new directory of a run that starts at this moment is not locked yet.
        if time.time() - made_at > ABANDONED_SECONDS:
            try:
                state = State(directory)
            except StateError:
                continue  # in use, or somebody else's
            Postgres(state).discard()
            state.close()
            shutil.rmtree(directory)
