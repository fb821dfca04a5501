"""`packhouse serve` as a process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

from hub.embedded.ports import Ports
from tests.system.world import ROOT, WAIT_SECONDS


@contextmanager
def served(database_url: str, *options: str, **environ: str) -> Iterator[int]:
    """The port of a web process with one worker, these options and this environment."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PACKHOUSE_")} | {
        "DATABASE_URL": database_url, "S3_ENDPOINT_URL": "http://127.0.0.1:1", "S3_ACCESS_KEY_ID": "unused",
        "S3_SECRET_ACCESS_KEY": "unused", "PACKHOUSE_SECRET_KEY": "x" * 32,
    }  # fmt: skip
    with closing(Ports()) as ports, ports.listen() as listener:
        number, handed = listener.getsockname()[1], listener.fileno()
        command = [sys.executable, "-m", "hub.cli", "serve", "--bind", f"fd://{handed}", "--workers", "1", *options]
        process = subprocess.Popen(command, cwd=ROOT, env=own | environ, stderr=subprocess.PIPE, pass_fds=[handed])
    try:
        deadline = time.monotonic() + WAIT_SECONDS
        while process.stderr is not None and b"Booting worker" not in process.stderr.readline():
            assert time.monotonic() < deadline
        yield number
    finally:
        process.terminate()
        process.communicate(timeout=WAIT_SECONDS)
