"""What the worker processes of the cases run. CLOCK_SHIFT moves the clock of such a process by so many seconds."""

from __future__ import annotations

import ctypes
import datetime as dt
import os
import signal
import threading
import time

SHIFT = float(os.environ.get("CLOCK_SHIFT", "0"))


class Shifted(dt.datetime):
    """A machine's clock that is wrong; every import below takes it for the real one."""

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Shifted:
        return cls.fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls) -> Shifted:
        return cls.now(dt.UTC).replace(tzinfo=None)


if SHIFT:
    true_time = time.time
    time.time = lambda: true_time() + SHIFT
    dt.datetime = Shifted  # type: ignore[misc]

import psycopg  # noqa: E402  # after the clock

import tasks  # noqa: E402

URL = os.environ["DATABASE_URL"]
FOREVER = threading.Event()

app = tasks.App("tests.cases")
app.configure(database_url=URL)


def tell(event: str) -> None:
    """Tell the test, at once."""
    with psycopg.connect(URL, autocommit=True) as conn:
        conn.execute("SELECT pg_notify('test', %s)", (event,))


@app.task("note")
def note(event: str) -> None:
    tell(event)


@app.task("die", bind=True)
def die(self: tasks.Context) -> None:
    """Take the process along, before any clean-up."""
    tell(f"die {self.request.attempt}")
    os.kill(os.getpid(), signal.SIGKILL)


@app.task("hold", bind=True)
def hold(self: tasks.Context, name: str) -> None:
    """Take an hour, or what is left of the worker's time."""
    tell(f"hold {name} {self.request.attempt}")
    FOREVER.wait(3600)


@app.task("block", bind=True)
def block(self: tasks.Context, seconds: int) -> int:
    """Keep the interpreter to itself in the first attempt: PyDLL calls do not give it up, so no thread can run."""
    tell(f"block {self.request.attempt}")
    if self.request.attempt == 1:
        ctypes.PyDLL(None).sleep(seconds)
        tell("block is over")
    return self.request.attempt


@app.task("wait", bind=True)
def wait(self: tasks.Context, seconds: float) -> int:
    """Wait, and let other threads run meanwhile."""
    tell(f"wait {self.request.attempt}")
    FOREVER.wait(seconds)
    return self.request.attempt


@app.task("fail.once", bind=True, retry=tasks.Fixed(2))
def fail_once(self: tasks.Context) -> None:
    if self.request.attempt == 1:
        raise OSError
