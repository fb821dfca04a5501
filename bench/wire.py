"""Push and clone over loopback, by both transports, beside the floor and beside git.

    python -m bench.wire [W1 W2 W3 W4] [--only mpack,muse,git,floor] [--clients 1,8] [--streamed]
        [--clones | --pushes]

Prints one JSON line for each measurement: wall seconds (the median of the runs), CPU seconds of the servers for each
run and client, their peak memory in MB above idle, bytes on the wire. `floor`: an ideal client that gets the same
objects raw and in one piece, hashes each, and writes the files; from the same S3 server, and from nginx where that is
installed. `curl`: it gets the prebuilt pack and throws it away. `--streamed`: the store hands out no
presigned URLs. `--clones`: one push only, from a ready pack; `--pushes`: no clones.
"""

from __future__ import annotations

import argparse
import functools
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import select

from bench import wire_git, working_copies, worlds
from bench.meter import Meter
from bench.wire_floor import floor, nginx, put_floor
from bench.wire_muse import Muse
from bench.wire_push import RUNS, Pushes, opened, push_by_git
from hub.accounts import create_repository
from hub.cli.example import operator_token
from hub.cli.migrate import upgrade
from hub.client.cloning import clone
from hub.client.follow import await_prebuilt
from hub.client.patience import Timing
from hub.client.progress import Silent
from hub.client.transport import Remote
from hub.embedded.state import State
from hub.embedded.supervisor import Supervisor
from hub.models import Push
from hub.settings import environment

WORLDS = {"W1": worlds.w1, "W2": worlds.w2, "W3": worlds.w3, "W4": worlds.w4}
KINDS = ("mpack", "muse", "git", "floor")
WARM = 20
"""Questions that a hub has answered before clones are measured: it has just been started."""


@dataclass(frozen=True)
class Bench:
    """A running hub, and what is asked of it."""

    supervisor: Supervisor
    token: str
    folder: Path
    clients: list[int]
    once: bool
    """Push only once, and not from a working copy."""
    served: tuple[Path, str] | None
    """A directory that nginx serves, and its address."""

    def meter(self, world: worlds.World) -> Meter:
        """Measures what the hub's processes and the S3 server use."""
        s3 = self.supervisor.s3
        children = [*self.supervisor.children, *([s3.child] if s3 is not None and s3.child is not None else [])]
        return Meter(world, {child.name: child.record["pid"] for child in children})

    def clones(
        self, meter: Meter, what: str, call: Callable[[Path], object], check: Callable[[Path], object], **more: Any
    ) -> None:
        """Let one client call, and many at once, each with an empty directory; look when the clock has stopped."""
        for number in self.clients:
            with tempfile.TemporaryDirectory(dir=self.folder) as home:
                fresh = functools.partial(tempfile.mkdtemp, dir=home)
                meter.measure(
                    what, lambda fresh=fresh: call(Path(fresh())), prepare=working_copies.settle,
                    runs=RUNS if number == 1 else 1, clients=number, **more,
                )  # fmt: skip
                for place in Path(home).iterdir():
                    check(place)


def main() -> None:
    """Start a hub of its own in a temporary directory, measure, stop it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("worlds", nargs="*", choices=[*WORLDS, []], metavar="WORLD")
    parser.add_argument("--only", default=",".join(KINDS))
    parser.add_argument("--clients", default="1,8")
    parser.add_argument("--streamed", action="store_true")
    parser.add_argument("--clones", action="store_true")
    parser.add_argument("--pushes", action="store_true")
    asked = parser.parse_args()
    # Modules that have changed since `make setup` would be compiled by each command.
    subprocess.run([sys.executable, "-m", "compileall", "-q", "hub", "storage", "tasks"], check=True)
    environ = environment() | ({"PACKHOUSE_PRESIGN": "false"} if asked.streamed else {})
    with tempfile.TemporaryDirectory() as folder, closing(State(Path(folder) / "state")) as state:
        supervisor = Supervisor(state, environ)
        try:
            supervisor.start_servers()
            supervisor.migrate(upgrade)
            supervisor.start_hub()
            supervisor.wait_healthy()
            token = operator_token(state, supervisor.environ["DATABASE_URL"], f"{supervisor.url}/example/hello")
            clients = [] if asked.pushes else [int(number) for number in asked.clients.split(",")]
            with nginx(Path(folder) / "nginx") as served:
                bench = Bench(supervisor, token, Path(folder), clients, asked.clones, served)
                for name in asked.worlds or WORLDS:
                    measure(bench, WORLDS[name](), asked.only.split(","))
        finally:
            supervisor.stop()


def measure(bench: Bench, world: worlds.World, kinds: list[str]) -> None:
    """Every measurement of one world."""
    if "floor" in kinds:
        by_floor(bench, world)
    if "mpack" in kinds:
        by_mpack(bench, world)
    if "muse" in kinds:
        by_muse(bench, world)
    if "git" in kinds and shutil.which("git"):
        by_git(bench, world)


def by_floor(bench: Bench, world: worlds.World) -> None:
    """The limit, with both servers."""
    links = {"floor": put_floor(bench.supervisor.settings, world)}
    if bench.served is not None:
        folder, address = bench.served
        (folder / world.name).write_bytes(b"".join(world.objects.values()))
        links["floor from nginx"] = f"{address}/{world.name}"
    for what, link in links.items():
        call, check = functools.partial(floor, link, world), functools.partial(_compare, world)
        bench.clones(Meter(world, {}), what, call, check)


def by_mpack(bench: Bench, world: worlds.World) -> None:
    """Our own client: pushes until their answer, until clones are ready, and clones, also by the command."""
    meter = bench.meter(world)
    pushes = Pushes(bench.supervisor, bench.token, world)
    pushes.measure(meter, bench.folder, once=bench.once)
    for _ in range(WARM):  # each process of the hub puts a statement together at its first use
        with Remote(pushes.url, bench.token) as remote:
            offer = remote.fetch_mpack()
    meter.measure("curl of the pack", lambda: _curl(str(offer.url)), runs=RUNS, bytes_down=offer.size)
    if bench.served is not None:
        folder, address = bench.served
        _curl(str(offer.url), folder / "pack")
        meter.measure("nginx: curl of the pack", lambda: _curl(f"{address}/pack"), runs=RUNS, bytes_down=offer.size)
    check = functools.partial(_compare_copy, world)
    for what, way in {"clone by mpack": _clone_mpack, "clone by mpack, the command": _run_packhouse}.items():
        bench.clones(meter, what, functools.partial(way, pushes.url), check, bytes_down=offer.size)


def by_muse(bench: Bench, world: worlds.World) -> None:
    """A client that speaks as the Muse client does; what is too large for it comes in parts."""
    name = f"{world.name.lower()}-muse"
    url = f"{bench.supervisor.url}/example/{name}"
    meter = bench.meter(world)
    client = Muse(url, bench.token)
    steps = world.steps()
    with opened(bench.supervisor) as session:
        create_repository(session, f"example/{name}")
        session.commit()
    meter.measure(
        "push by muse", lambda: [client.push(step) for step in steps], bytes_up=lambda: client.sent, pushes=len(steps)
    )
    with opened(bench.supervisor) as session:
        push_id = str(session.scalars(select(Push.push_id).order_by(Push.created_at.desc()).limit(1)).one())
    with Remote(url, bench.token, timing=Timing(wait_seconds=600)) as remote:
        meter.measure("until clones are ready, muse", lambda: await_prebuilt(remote, push_id, Silent()))
    with tempfile.TemporaryDirectory(dir=bench.folder) as scratch:
        client.clone(Path(scratch))
    received = client.received
    bench.clones(meter, "clone by muse", client.clone, functools.partial(_compare, world), bytes_down=received)


def by_git(bench: Bench, world: worlds.World) -> None:
    """Git over smart HTTP; the server's memory is that of its own process."""
    root = bench.folder / f"git-{world.name}"
    root.mkdir()
    with wire_git.served(root) as (address, pid):
        meter = Meter(world, {"git": pid})
        url = push_by_git(meter, world, root, address, once=bench.once)
        before = wire_git.traffic(root)[1]
        with tempfile.TemporaryDirectory(dir=bench.folder) as scratch:
            _clone_git(url, Path(scratch))
        received = wire_git.traffic(root)[1] - before
        call, check = functools.partial(_clone_git, url), functools.partial(_compare_copy, world)
        bench.clones(meter, "clone by git", call, check, bytes_down=received)
    shutil.rmtree(root)


def _clone_mpack(url: str, scratch: Path) -> None:
    with Remote(url) as remote:
        clone(remote, scratch / "copy", Silent())


def _run_packhouse(url: str, scratch: Path) -> None:
    command = [Path(sys.executable).with_name("packhouse"), "clone", "-q", url, str(scratch / "copy")]
    subprocess.run(command, check=True)


def _clone_git(url: str, scratch: Path) -> None:
    wire_git.run("clone", "-q", url, str(scratch / "copy"))


def _compare_copy(world: worlds.World, scratch: Path) -> None:
    _compare(world, scratch / "copy")


def _compare(world: worlds.World, target: Path) -> None:
    for path, content in world.tree.items():
        if (target / path).read_bytes() != content:
            raise SystemExit(f"{world.name}: {path} differs")


def _curl(url: str, to: Path = Path("/dev/null")) -> None:
    subprocess.run(["curl", "-sf", "-o", str(to), url], check=True)


if __name__ == "__main__":
    main()
