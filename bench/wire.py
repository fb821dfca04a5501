"""Push and clone over loopback, by both transports, beside the floor and beside git.

    python -m bench.wire [W1 W2 W3 W4] [--only mpack,muse,git,floor] [--clients 1,8]

Prints one JSON line for each measurement: wall seconds (the median of the runs), CPU seconds of the servers and their
peak memory in MB above idle, bytes on the wire. `floor`: an ideal client that gets the same bytes from the same S3
server in one piece, hashes each object, and writes the files. `s3`: curl gets the prebuilt pack, and throws it away.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from bench import wire_git, worlds
from bench.processes import Use, reset_peak, use_of
from bench.wire_floor import floor, put_floor
from bench.wire_muse import Muse, Refused
from hub.accounts import create_repository
from hub.cli.example import operator_token
from hub.cli.migrate import upgrade
from hub.client.cloning import clone
from hub.client.follow import await_prebuilt
from hub.client.patience import Timing
from hub.client.progress import Silent
from hub.client.sending import Move, send
from hub.client.transport import Remote
from hub.embedded.state import State
from hub.embedded.supervisor import Supervisor
from hub.models.base import driver_url
from hub.settings import environment

RUNS = 3
WORLDS = {"W1": worlds.w1, "W2": worlds.w2, "W3": worlds.w3, "W4": worlds.w4}
KINDS = ("mpack", "muse", "git", "floor")


class Meter:
    """Measures calls, and what the processes of `pids` used meanwhile."""

    def __init__(self, world: worlds.World, pids: dict[str, int]) -> None:
        self._world = world
        self._pids = pids

    def measure(self, what: str, call: Callable[[], object], *, runs: int = 1, clients: int = 1, **more: Any) -> float:
        """Call `runs` times, each time by `clients` processes at once; print the line, return the median."""
        for pid in self._pids.values():
            reset_peak(pid)
        before = {name: use_of(pid) for name, pid in self._pids.items()}
        walls = [self._timed(call, clients) for _ in range(runs)]
        wall = statistics.median(walls)
        line: dict[str, Any] = {"world": self._world.name, "what": what, "clients": clients, "runs": runs}
        line["wall_s"] = round(wall, 3)
        line |= {name: given() if callable(given) else given for name, given in more.items()}
        for name, pid in self._pids.items():
            line |= _used(name, use_of(pid), before[name], runs * clients)
        print(json.dumps(line), flush=True)
        return wall

    @staticmethod
    def _timed(call: Callable[[], object], clients: int) -> float:
        began = time.monotonic()
        if clients == 1:
            call()
            return time.monotonic() - began
        context = multiprocessing.get_context("fork")
        children = [context.Process(target=call) for _ in range(clients)]
        for child in children:
            child.start()
        for child in children:
            child.join()
        if any(child.exitcode for child in children):
            raise SystemExit("a client has failed")
        return time.monotonic() - began


def _used(name: str, now: Use, before: Use, times: int) -> dict[str, float]:
    return {
        f"{name}_cpu_s": round((now.cpu_seconds - before.cpu_seconds) / times, 3),
        f"{name}_peak_mb_above_idle": round(now.peak_mb - before.peak_mb, 1),
    }


def main() -> None:
    """Start a hub of its own in a temporary directory, measure, stop it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("worlds", nargs="*", choices=[*WORLDS, []], metavar="WORLD")
    parser.add_argument("--only", default=",".join(KINDS))
    parser.add_argument("--clients", default="1,8")
    asked = parser.parse_args()
    kinds = asked.only.split(",")
    clients = [int(number) for number in asked.clients.split(",")]
    with tempfile.TemporaryDirectory() as folder, closing(State(Path(folder) / "state")) as state:
        supervisor = Supervisor(state, environment())
        try:
            supervisor.start_servers()
            supervisor.migrate(upgrade)
            supervisor.start_hub()
            supervisor.wait_healthy()
            token = operator_token(state, supervisor.environ["DATABASE_URL"], f"{supervisor.url}/example/hello")
            for name in asked.worlds or WORLDS:
                measure(supervisor, token, WORLDS[name](), Path(folder), kinds, clients)
        finally:
            supervisor.stop()


def measure(
    supervisor: Supervisor, token: str, world: worlds.World, folder: Path, kinds: list[str], clients: list[int]
) -> None:
    """Every measurement of one world."""
    pids = {child.name: child.record["pid"] for child in supervisor.children}
    meter = Meter(world, pids)
    if "floor" in kinds:
        link = put_floor(supervisor.settings, world)
        for number in clients:
            call = functools.partial(floor, link, world, folder)
            Meter(world, {}).measure("floor", call, runs=RUNS if number == 1 else 1, clients=number)
    if "mpack" in kinds:
        by_mpack(supervisor, token, world, folder, meter, clients)
    if "muse" in kinds:
        by_muse(supervisor, token, world, folder, meter, clients)
    if "git" in kinds and shutil.which("git"):
        by_git(world, folder, clients)


def by_mpack(
    supervisor: Supervisor, token: str, world: worlds.World, folder: Path, meter: Meter, clients: list[int]
) -> None:
    """Our own client: the push until its answer, until clones are ready, and clones."""
    _create(supervisor, f"example/{world.name.lower()}")
    url = f"{supervisor.url}/example/{world.name.lower()}"
    packs = [worlds.pack(commits) for commits in world.steps()]
    with Remote(url, token, timing=Timing(wait_seconds=600)) as remote:
        push_ids: list[str] = []

        def push() -> None:
            head = None
            for packed in packs:
                pushed = send(remote, packed.file, packed.summary, Move("main", packed.head, head))
                push_ids.append(pushed.push_id)
                head = packed.head

        sent = sum(packed.summary.size for packed in packs)
        meter.measure("push by mpack", push, bytes_up=sent, pushes=len(packs))
        meter.measure("until clones are ready", lambda: await_prebuilt(remote, push_ids[-1], Silent()))
        offer = remote.fetch_mpack()
        meter.measure("s3: curl of the pack", lambda: _curl(str(offer.url)), runs=RUNS, bytes_down=offer.size)
        for number in clients:
            call = functools.partial(_clone_mpack, url, token, world, folder)
            runs = RUNS if number == 1 else 1
            meter.measure("clone by mpack", call, runs=runs, clients=number, bytes_down=offer.size)


def by_muse(
    supervisor: Supervisor, token: str, world: worlds.World, folder: Path, meter: Meter, clients: list[int]
) -> None:
    """A client that speaks as the Muse client does."""
    _create(supervisor, f"example/{world.name.lower()}-muse")
    url = f"{supervisor.url}/example/{world.name.lower()}-muse"
    client = Muse(url, token)
    meter.measure("push by muse", lambda: [client.push(step) for step in world.steps()], bytes_up=lambda: client.sent)
    reader = Muse(url, token)
    try:
        _clone_muse(reader, world, folder)
    except Refused as error:
        print(json.dumps({"world": world.name, "what": "clone by muse", "refused": str(error)}), flush=True)
        return
    with Remote(url, token) as remote:
        remote.fetch_mpack()  # waits until the clone is prebuilt
    for number in clients:
        call = functools.partial(_clone_muse, reader, world, folder)
        runs = RUNS if number == 1 else 1
        received = reader.received
        meter.measure("clone by muse", call, runs=runs, clients=number, bytes_down=received)
        reader.received = received


def by_git(world: worlds.World, folder: Path, clients: list[int]) -> None:
    """Git over smart HTTP; the server's memory is that of its own process."""
    root = folder / f"git-{world.name}"
    work, bare = root / "work", root / "repository.git"
    root.mkdir()
    wire_git.make(world.commits, work, bare)
    with wire_git.served(root) as (address, pid):
        meter = Meter(world, {"git": pid})
        url = f"{address}/repository.git"
        push = functools.partial(wire_git.run, "-C", str(work), "push", "-q", url, "main")
        meter.measure("push by git", push, bytes_up=lambda: wire_git.traffic(root)[0])
        for number in clients:
            start = wire_git.traffic(root)[1]
            runs = RUNS if number == 1 else 1
            call = functools.partial(_clone_git, url, folder)
            times = runs * number
            down = functools.partial(lambda start, times: (wire_git.traffic(root)[1] - start) // times, start, times)
            meter.measure("clone by git", call, runs=runs, clients=number, bytes_down=down)
    shutil.rmtree(root)


def _clone_mpack(url: str, token: str, world: worlds.World, folder: Path) -> None:
    with Remote(url, token) as remote, tempfile.TemporaryDirectory(dir=folder) as scratch:
        clone(remote, Path(scratch) / "copy", Silent())
        _compare(world, Path(scratch) / "copy")


def _clone_muse(client: Muse, world: worlds.World, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        client.clone(Path(scratch))
        _compare(world, Path(scratch))


def _clone_git(url: str, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        wire_git.run("clone", "-q", url, f"{scratch}/copy")


def _compare(world: worlds.World, target: Path) -> None:
    for path, content in world.tree.items():
        if (target / path).read_bytes() != content:
            raise SystemExit(f"{world.name}: {path} differs")


def _curl(url: str) -> None:
    subprocess.run(["curl", "-sf", "-o", "/dev/null", url], check=True)


def _create(supervisor: Supervisor, path: str) -> None:
    engine = create_engine(driver_url(supervisor.environ["DATABASE_URL"]))
    with Session(engine) as session, session.begin():
        create_repository(session, path)
    engine.dispose()


if __name__ == "__main__":
    main()
