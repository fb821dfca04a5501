"""Who a worker says that it is. For display only: what a worker owns is named by claim tokens, never by its name."""

from __future__ import annotations

import os
import secrets
import socket
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from tasks.job import WorkerInfo

if TYPE_CHECKING:
    from collections.abc import Sequence

DISTRIBUTION = "packhouse"


def new_worker_id() -> str:
    """`host:pid:random`. Hosts and pids come back with containers; the random part does not."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def worker_info(worker_id: str, queues: Sequence[str], tasks: Sequence[str]) -> WorkerInfo:
    """What this process shows in the list of workers. `version` is empty where the package is not installed."""
    try:
        installed = version(DISTRIBUTION)
    except PackageNotFoundError:
        installed = ""
    return WorkerInfo(worker_id, socket.gethostname(), os.getpid(), queues, sorted(tasks), installed)
