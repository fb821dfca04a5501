"""Pushes by the mpack transport and by git, each from a ready pack and from a working copy as a user has it.

From a ready pack, neither side has anything to read or compress: what is measured is the way and the server. From a
working copy, each side's own command runs as a process, reads an object a file, packs and sends.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any
from unittest import mock

from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from bench import wire_git, working_copies, worlds
from bench.meter import Meter
from hub.accounts import create_repository
from hub.client.connections import Answer
from hub.client.follow import await_prebuilt
from hub.client.http import Http
from hub.client.muse_pushing import push_muse
from hub.client.patience import Timing
from hub.client.progress import Silent
from hub.client.sending import Move, send
from hub.client.transport import Remote
from hub.embedded.supervisor import Supervisor
from hub.models.base import driver_url
from tasks.queue import list_jobs

RUNS = 3
READY, WORKING_COPY = "from a ready pack", "from a working copy"
WAIT_SECONDS = 600
POLL_SECONDS = 0.2


class Pushes:
    """The pushes of one world to a hub, each to a repository of its own; `url` is that of the last one."""

    def __init__(self, supervisor: Supervisor, token: str, world: worlds.World) -> None:
        self._supervisor = supervisor
        self._token = token
        self._world = world
        self._made = 0
        self._push_id = ""
        self._sent: list[int] = []
        self.url = ""

    def measure(self, meter: Meter, folder: Path, *, once: bool) -> None:
        """Print a line for each kind of push, and how long it takes then until clones are ready.

        `once`: a single push, from a ready pack.
        """
        if self._world.pushes == 1 and not once:
            self._from_working_copy(meter, folder / f"muse-{self._world.name}")
        packs = [worlds.pack(commits) for commits in self._world.steps()]

        def push() -> None:
            head = None
            with counted() as self._sent, self._remote() as remote:
                inline_bytes = remote.refs().inline_bytes
                for packed in packs:
                    move = Move("main", packed.head, head)
                    self._push_id = send(remote, packed.file, packed.summary, move, inline_bytes).push_id
                    head = packed.head

        meter.measure(
            f"push by mpack, {READY}", push, prepare=self._prepare, runs=1 if once else RUNS,
            bytes_up=lambda: sum(self._sent), pushes=len(packs),
        )  # fmt: skip
        with self._remote() as remote:
            meter.measure("until clones are ready", lambda: await_prebuilt(remote, self._push_id, Silent()))

    def _from_working_copy(self, meter: Meter, copy: Path) -> None:
        working_copies.muse(self._world.commits, copy)
        working_copies.settle()
        self._prepare()
        # Counted apart from what is timed; it also is the first write to a new store, which makes its volumes then.
        with counted() as sent, self._remote() as remote:
            push_muse(remote, copy, Silent())
        environ = {**os.environ, "PACKHOUSE_TOKEN": self._token}

        def push() -> None:
            command = [sys.executable, "-m", "hub.cli", "push", str(copy), self.url, "--quiet"]
            subprocess.run(command, check=True, env=environ)

        meter.measure(
            f"push by mpack, {WORKING_COPY}", push, prepare=self._prepare, runs=RUNS, bytes_up=sum(sent), pushes=1
        )

    def _prepare(self) -> None:
        """Wait until nothing of earlier pushes is left to do, and make the repository of the next."""
        self._made += 1
        path = f"example/{self._world.name.lower()}-{self._made}"
        self.url = f"{self._supervisor.url}/{path}"
        with opened(self._supervisor) as session:
            while list_jobs(session, status="pending", limit=1) or list_jobs(session, status="running", limit=1):
                session.rollback()
                time.sleep(POLL_SECONDS)
            create_repository(session, path)
            session.commit()

    def _remote(self) -> Remote:
        return Remote(self.url, self._token, timing=Timing(wait_seconds=WAIT_SECONDS))


@contextmanager
def opened(supervisor: Supervisor) -> Iterator[Session]:
    """The database of the hub."""
    engine = create_engine(driver_url(supervisor.environ["DATABASE_URL"]))
    with Session(engine) as session:
        yield session
    engine.dispose()


def push_by_git(meter: Meter, world: worlds.World, root: Path, address: str, *, once: bool) -> str:
    """Print a line for each kind of push to the git server of `root`; the address that the ready pack went to."""
    if not once:
        working_copies.git(world.commits, root / "loose")
        _push_by_git(meter, WORKING_COPY, root, "loose", address)
    wire_git.make(world.commits, root / "ready")
    return _push_by_git(meter, READY, root, "ready", address)


def _push_by_git(meter: Meter, what: str, root: Path, work: str, address: str) -> str:
    working_copies.settle()
    targets = [f"{work}-{number}.git" for number in range(RUNS)]
    for target in targets:
        wire_git.make_bare(root / target)
    before = wire_git.traffic(root)[0]
    waiting = iter(targets)

    def push() -> None:
        wire_git.run("-C", str(root / work), "push", "-q", f"{address}/{next(waiting)}", "main")

    meter.measure(
        f"push by git, {what}", push, runs=RUNS, bytes_up=lambda: (wire_git.traffic(root)[0] - before) // RUNS
    )
    return f"{address}/{targets[-1]}"


@contextmanager
def counted() -> Iterator[list[int]]:
    """The lengths of all bodies that this process sends by our client meanwhile."""
    sent: list[int] = []
    really = Http.open

    @functools.wraps(really)
    def open_counted(
        self: Http, method: str, url: str, *, headers: Mapping[str, str], body: bytes | IO[bytes] | None = None,
        **options: Any,
    ) -> AbstractContextManager[Answer]:  # fmt: skip
        sent.append(len(body) if isinstance(body, bytes) else int(headers.get("Content-Length", 0)))
        return really(self, method, url, headers=headers, body=body, **options)

    with mock.patch.object(Http, "open", open_counted):
        yield sent
