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
import shutil
import subprocess
import tempfile
from contextlib import closing
from pathlib import Path

from bench import wire_git, worlds
from bench.meter import Meter
from bench.wire_floor import floor, put_floor
from bench.wire_muse import Muse, Refused
from bench.wire_push import RUNS, Pushes, opened, push_by_git
from hub.accounts import create_repository
from hub.cli.example import operator_token
from hub.cli.migrate import upgrade
from hub.client.cloning import clone
from hub.client.progress import Silent
from hub.client.transport import Remote
from hub.embedded.state import State
from hub.embedded.supervisor import Supervisor
from hub.settings import environment

WORLDS = {"W1": worlds.w1, "W2": worlds.w2, "W3": worlds.w3, "W4": worlds.w4}
KINDS = ("mpack", "muse", "git", "floor")


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
    """Our own client: pushes until their answer, until clones are ready, and clones."""
    pushes = Pushes(supervisor, token, world)
    pushes.measure(meter, folder)
    with Remote(pushes.url, token) as remote:
        offer = remote.fetch_mpack()
    meter.measure("s3: curl of the pack", lambda: _curl(str(offer.url)), runs=RUNS, bytes_down=offer.size)
    for number in clients:
        call = functools.partial(_clone_mpack, pushes.url, token, world, folder)
        runs = RUNS if number == 1 else 1
        meter.measure("clone by mpack", call, runs=runs, clients=number, bytes_down=offer.size)


def by_muse(
    supervisor: Supervisor, token: str, world: worlds.World, folder: Path, meter: Meter, clients: list[int]
) -> None:
    """A client that speaks as the Muse client does."""
    with opened(supervisor) as session:
        create_repository(session, f"example/{world.name.lower()}-muse")
        session.commit()
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
    root.mkdir()
    with wire_git.served(root) as (address, pid):
        meter = Meter(world, {"git": pid})
        url = push_by_git(meter, world, root, address)
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


if __name__ == "__main__":
    main()
