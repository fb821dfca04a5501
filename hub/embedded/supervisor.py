"""All processes of one state directory: started in order, watched, and stopped in the opposite order."""

from __future__ import annotations

import http.client
import os
import shlex
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import NoReturn

from hub.embedded.objectstore import PROBE, ObjectStore
from hub.embedded.ports import LOOPBACK, listen
from hub.embedded.postgres import Postgres
from hub.embedded.processes import Child, clear_leftover
from hub.embedded.state import State
from hub.settings import Settings, SettingsError, from_env
from storage import S3Settings, S3Store

PORT = 8000
HEALTHY_SECONDS = 60.0
GRACE_SECONDS = 10
"""For the tasks under way to end."""
STOP_SECONDS = 15.0
"""Until a process is killed; longer than the worker's grace and gunicorn's."""
POLL_SECONDS = 0.05


class Supervisor:
    """Postgres and the S3 server, unless the environment names others; the web process and a worker."""

    def __init__(self, state: State, environ: Mapping[str, str], *, port: int | None = None) -> None:
        """Prepare; nothing is started yet.

        `port` None: the port of the last run, else 8000, else any free one; a given one is the only one.
        Raises SettingsError for an environment that replaces an embedded part only by half.
        """
        if "S3_ENDPOINT_URL" not in environ and {"S3_ACCESS_KEY_ID", "S3_SECRET_ACCESS_KEY"} & set(environ):
            raise SettingsError("S3_ENDPOINT_URL must be set as well, or neither of the S3 keys")
        self.state = state
        self.environ = dict(environ)
        self.postgres = None if environ.get("DATABASE_URL") else Postgres(state)
        self.s3 = None if environ.get("S3_ENDPOINT_URL") else ObjectStore(state)
        self.children: list[Child] = []
        self._wanted_port = port
        self.port = 0

    @property
    def url(self) -> str:
        """The hub's address."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def settings(self) -> Settings:
        """The hub's settings, complete once the servers run."""
        return from_env(self.environ)

    def start_servers(self) -> None:
        """Start Postgres and the S3 server side by side, wait until both work, and make the bucket."""
        if self.postgres is not None:
            self.postgres.launch()
        if self.s3 is not None:
            self.s3.launch()
        self.environ.setdefault("PACKHOUSE_SECRET_KEY", self.state.secret("secret_key"))
        if self.postgres is not None:
            self.environ["DATABASE_URL"] = self.postgres.wait_ready()
        if self.s3 is not None:
            self.s3.wait_ready()
            found = self.s3.settings("")
            self.environ["S3_ENDPOINT_URL"] = found.endpoint_url
            self.environ["S3_ACCESS_KEY_ID"] = found.access_key
            self.environ["S3_SECRET_ACCESS_KEY"] = found.secret_key
        settings = self.settings
        bucket = S3Settings(
            endpoint_url=settings.s3_endpoint_url,
            public_endpoint_url=None,
            region=settings.s3_region,
            bucket=settings.s3_bucket,
            access_key=settings.s3_access_key,
            secret_key=settings.s3_secret_key,
        )
        with closing(S3Store(bucket)) as store:
            store.ensure_bucket()
            if self.s3 is not None:
                # The first write to a bucket makes its volume, and a large one waits a second for that.
                store.put(PROBE, b"ready")

    def migrate(self, upgrade: Callable[[str], None]) -> None:
        """Bring the database to the newest schema with `upgrade(database_url)`."""
        upgrade(self.environ["DATABASE_URL"])

    def start_hub(self) -> None:
        """Start the web process and a worker; do not wait for them."""
        for name in ("web", "worker"):
            clear_leftover(self.state.get(name), stop_signal=signal.SIGTERM, seconds=STOP_SECONDS)
        with self._listen() as listener:
            self.port = listener.getsockname()[1]
            self.state.put("web_port", self.port)
            # It listens before the web process exists: whoever answers at our address is our web process.
            self._start("web", "serve", "--bind", f"fd://{listener.fileno()}", keep=listener)
        self._start("worker", "worker", "--grace", str(GRACE_SECONDS))

    def _listen(self) -> socket.socket:
        if self._wanted_port is not None:
            return listen(self._wanted_port)
        kept = self.state.get("web_port")
        return self.state.ports.listen(preferred=[kept, PORT] if kept else [PORT])

    def _start(self, name: str, *arguments: str, keep: socket.socket | None = None) -> None:
        child = Child.start(
            name,
            [sys.executable, "-P", "-m", "hub.cli", *arguments],
            log=self.state.log(name),
            env=self.environ,
            cwd=self.state.directory,
            stop_seconds=STOP_SECONDS,
            keep=keep,
        )
        self.children.append(child)
        self.state.put(name, child.record)

    def wait_healthy(self) -> None:
        """Wait until the hub answers. Raises ChildFailed when a process ends, or none answers in time."""
        deadline = time.monotonic() + HEALTHY_SECONDS
        while not self._is_healthy():
            self.check()
            if time.monotonic() > deadline:
                raise self.children[0].failure(f"did not answer within {HEALTHY_SECONDS:.0f} s")
            time.sleep(POLL_SECONDS)

    def _is_healthy(self) -> bool:
        # Not urllib: it would ask the proxy of the environment for a loopback address.
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=5)
        with closing(connection):
            try:
                connection.request("GET", "/health")
                return connection.getresponse().status == http.client.OK
            except (OSError, http.client.HTTPException):
                return False

    def check(self) -> None:
        """Raise ChildFailed, with the last log lines, if a process has ended."""
        for child in self._running:
            status = child.ended()
            if status is not None:
                raise child.failure(f"ended by itself ({_status(status)})")

    def watch(self) -> NoReturn:
        """Block until a process ends, then raise ChildFailed. A signal handler that raises ends it too."""
        while True:
            self.check()
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)

    def stop(self) -> None:
        """Stop everything: first those who use the servers, then the servers. Repeating it is harmless."""
        for child in self.children:
            child.ask_to_stop()
        for child in self.children:
            child.stop()
            self.state.put(child.name, None)
        for server in (self.s3, self.postgres):
            if server is not None:
                server.stop()

    @property
    def _running(self) -> list[Child]:
        servers = [server.child for server in (self.postgres, self.s3) if server is not None]
        return [*(child for child in servers if child is not None), *self.children]

    def write_environment(self, extra: Mapping[str, str]) -> Path:
        """Write a file that a shell reads (`. FILE`) to act as operator of this hub; return its path."""
        names = ("DATABASE_URL", "S3_ENDPOINT_URL", "S3_ACCESS_KEY_ID", "S3_SECRET_ACCESS_KEY", "PACKHOUSE_SECRET_KEY")
        values = {name: self.environ[name] for name in names} | dict(extra)
        lines = [f"export {name}={shlex.quote(value)}" for name, value in values.items()]
        lines.append(f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH")
        path = self.state.directory / "env"
        path.touch(mode=0o600)
        path.write_text("\n".join(lines) + "\n")
        return path


def _status(status: int) -> str:
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
