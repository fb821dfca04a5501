"""The state directory: who owns it, and what must survive from one run to the next.

.packhouse/            0700
    lock               held (flock) by the one supervisor that runs the servers of this directory
    state.json         0600: ports, passwords, keys, and the processes that were started
    postgres/ s3/      the servers' data
    log/               one log per child
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from pathlib import Path
from typing import Any

from hub.embedded.ports import Ports


class StateError(RuntimeError):
    """The state directory cannot be used; the message says why and what to do."""


class StateInUse(StateError):
    """Another supervisor runs the servers of this state directory."""


class State:
    """An open state directory: exclusively ours until `close`, and so are the ports of its servers.

    A SIGKILL cannot leave it locked: the kernel drops the lock with the process.
    """

    def __init__(self, directory: Path) -> None:
        """Create the directory if need be, and take it.

        Raises StateInUse when another process holds it, StateError when it belongs to someone else or is
        unreadable.
        """
        self.directory = directory.absolute()
        self.ports = Ports()
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.directory.stat().st_uid != os.geteuid():
                raise StateError(f"{self.directory} belongs to another user; remove it or set PACKHOUSE_STATE")
            self.directory.chmod(0o700)
            self._lock = (self.directory / "lock").open("a+")
        except OSError as error:
            raise StateError(f"{self.directory} cannot be used: {error.strerror}") from error
        try:
            self._take()
            self._file = self.directory / "state.json"
            self._values: dict[str, Any] = self._load()
        except BaseException:
            self._lock.close()
            raise

    def _take(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._lock.seek(0)
            owner = self._lock.read(64).strip() or "another process"
            raise StateInUse(f"{self.directory} is in use by {owner}; stop it first, or set PACKHOUSE_STATE") from error
        self._lock.truncate(0)
        self._lock.write(f"process {os.getpid()}")
        self._lock.flush()

    def _load(self) -> dict[str, Any]:
        if not self._file.exists():
            return {}
        try:
            values = json.loads(self._file.read_text())
        except ValueError as error:
            raise StateError(f"{self._file} is damaged; remove {self.directory} to begin anew") from error
        if not isinstance(values, dict):
            raise StateError(f"{self._file} is damaged; remove {self.directory} to begin anew")
        return values

    def get(self, name: str) -> Any:  # a value of the JSON file
        """Return the value kept under `name`, or None."""
        return self._values.get(name)

    def put(self, name: str, value: Any) -> None:  # a value of the JSON file
        """Keep `value` (JSON) under `name`; on disk when this returns. None forgets it."""
        if value is None:
            self._values.pop(name, None)
        else:
            self._values[name] = value
        fresh = self._file.with_suffix(".new")
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(self._values, file, indent=2, sort_keys=True)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._file)

    def secret(self, name: str) -> str:
        """Return the secret kept under `name` (40 hex digits), making it the first time."""
        value = self.get(name)
        if value is None:
            value = secrets.token_hex(20)
            self.put(name, value)
        return str(value)

    def folder(self, name: str) -> Path:
        """Return the sub-directory `name`, made 0700 if need be."""
        path = self.directory / name
        path.mkdir(mode=0o700, exist_ok=True)
        return path

    def log(self, name: str) -> Path:
        """Return the path of the log of `name`."""
        return self.folder("log") / f"{name}.log"

    def close(self) -> None:
        """Give the directory and the ports up. Repeating it is harmless."""
        self.ports.close()
        self._lock.close()
