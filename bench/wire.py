"""Push and clone over loopback, beside the floor: an ideal client that gets the same bytes from the same S3 server.

Run it by `python -m bench.wire`, or choose: `python -m bench.wire W1 W3`. Prints one JSON line for each measurement:
wall seconds (the median of the runs), the ratio to the floor, CPU seconds and peak memory of the web process and the
worker, in MB above idle.
"""

from __future__ import annotations

import hashlib
import io
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import urllib3
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from bench import worlds
from bench.processes import Use, reset_peak, use_of
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
from hub.models.base import driver_url
from hub.services import s3_settings
from hub.settings import environment
from storage import S3Store

RUNS = 3
WORLDS = {"W1": worlds.w1, "W2": worlds.w2, "W3": worlds.w3}


def main(names: list[str]) -> None:
    """Start a hub of its own in a temporary directory, measure, stop it."""
    with tempfile.TemporaryDirectory() as folder, closing(State(Path(folder) / "state")) as state:
        supervisor = Supervisor(state, environment())
        try:
            supervisor.start_servers()
            supervisor.migrate(upgrade)
            supervisor.start_hub()
            supervisor.wait_healthy()
            token = operator_token(state, supervisor.environ["DATABASE_URL"], f"{supervisor.url}/example/hello")
            for name in names:
                measure(supervisor, token, WORLDS[name](), Path(folder))
        finally:
            supervisor.stop()


def measure(supervisor: Supervisor, token: str, built: worlds.Built, folder: Path) -> None:
    """Push the world once, clone it RUNS times, each beside the floor."""
    path = f"example/{built.name.lower()}"
    _create(supervisor, path)
    pids = {child.name: child.record["pid"] for child in supervisor.children}
    idle = {name: use_of(pid) for name, pid in pids.items()}
    with Remote(f"{supervisor.url}/{path}", token, timing=Timing(wait_seconds=600)) as remote:
        began = time.monotonic()
        push(remote, built)
        pushed = time.monotonic() - began
        report(built, "push", pushed, None, pids, idle, bytes=built.summary.size)
        for pid in pids.values():
            reset_peak(pid)
        idle = {name: use_of(pid) for name, pid in pids.items()}
        floors = [timed(lambda: floor(supervisor, built, folder)) for _ in range(RUNS)]
        clones = [timed(lambda: clone_once(remote, built, folder)) for _ in range(RUNS)]
        report(built, "clone", statistics.median(clones), statistics.median(floors), pids, idle, runs=RUNS)


def push(remote: Remote, built: worlds.Built) -> None:
    """Push the pack and wait until clones are ready."""
    presigned = remote.presign(built.summary.mpack_id, built.summary.size, "main", built.head, None)
    if presigned.upload is not None:
        built.file.seek(0)
        remote.upload(presigned.upload, built.file, built.summary.size)
    pushed = remote.push(presigned.mpack_key, "main", built.head, expected_head=None)
    await_prebuilt(remote, pushed.push_id, Silent())


def clone_once(remote: Remote, built: worlds.Built, folder: Path) -> None:
    """Clone and compare with the source, byte for byte."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        target = Path(scratch) / "copy"
        clone(remote, target, Silent())
        for path, content in built.tree.items():
            if (target / path).read_bytes() != content:
                raise SystemExit(f"{built.name}: {path} differs")


def floor(supervisor: Supervisor, built: worlds.Built, folder: Path) -> None:
    """One GET of all objects, raw, hashed one by one; the tip's tree is written and the pack is kept."""
    with (
        closing(S3Store(s3_settings(supervisor.settings))) as store,
        tempfile.TemporaryDirectory(dir=folder) as scratch,
    ):
        key = f"bench/{built.name}"
        raw = b"".join(built.tree.values())
        if key not in [stat.key for stat in store.list("bench/")]:
            store.put(key, io.BytesIO(raw))
        link = store.presign_get(key, expires=timedelta(minutes=5))
        assert link is not None
        got = urllib3.request("GET", link.url).data
        (Path(scratch) / "kept").write_bytes(got)
        view, at = memoryview(got), 0
        for path, content in built.tree.items():
            piece = view[at : at + len(content)]
            at += len(content)
            hashlib.sha256(piece).hexdigest()
            target = Path(scratch) / path
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(piece)


def report(
    built: worlds.Built, what: str, wall: float, floor_wall: float | None,
    pids: dict[str, int], idle: dict[str, Use], **more: Any,
) -> None:  # fmt: skip
    """Print one line."""
    line: dict[str, Any] = {"world": built.name, "what": what, "wall_s": round(wall, 3), **more}
    if floor_wall is not None:
        line |= {"floor_s": round(floor_wall, 3), "ratio": round(wall / floor_wall, 2)}
    for name, pid in pids.items():
        now = use_of(pid)
        line[f"{name}_cpu_s"] = round(now.cpu_seconds - idle[name].cpu_seconds, 2)
        line[f"{name}_peak_mb_above_idle"] = round(now.peak_mb - idle[name].peak_mb, 1)
    print(json.dumps(line), flush=True)


def timed(call: Callable[[], object]) -> float:
    """Wall seconds of the call."""
    began = time.monotonic()
    call()
    return time.monotonic() - began


def _create(supervisor: Supervisor, path: str) -> None:
    engine = create_engine(driver_url(supervisor.environ["DATABASE_URL"]))
    with Session(engine) as session, session.begin():
        create_repository(session, path)
    engine.dispose()


if __name__ == "__main__":
    main(sys.argv[1:] or list(WORLDS))
