"""The ticker: APScheduler calls poll, heartbeat, sweep, periodic, prune and registration of one worker; signals end it.

Wiring only: each thing that is called has its own bound and can be called by a test without any timer.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.interval import IntervalTrigger

from tasks.listener import Listener
from tasks.options import POLL_SECONDS, SWEEP_SECONDS
from tasks.pool import DATABASE_AWAY, NOT_MIGRATED, what_is_missing
from tasks.signals import StopSignals
from tasks.verdict import describe

if TYPE_CHECKING:
    from collections.abc import Callable

    from tasks.worker import Worker

log = logging.getLogger(__name__)

POLL_SECONDS_MIN = 0.2
HEARTBEAT_SECONDS = 0.25
"""How often the worker looks which leases are past a third; the shortest lease is one second."""
PERIODIC_SECONDS = 0.5
"""How late a periodic task may be enqueued; the database is asked only when one may be due."""
PRUNE_SECONDS = 10.0
"""Between two looks for jobs that ended long enough ago."""
REGISTER_SECONDS = 10.0
PAUSE_SECONDS_MAX = 5.0
"""Longest pause after an error: work goes on within seconds of the database's return."""


class Pace:
    """The pause before the next poll: short while jobs come, doubling to `poll` seconds while none do."""

    def __init__(self, poll: float) -> None:
        self._poll = poll
        self._pause = min(POLL_SECONDS_MIN, poll)

    def found(self, claimed: int) -> None:
        """Note how many jobs the last poll claimed."""
        self._pause = min(POLL_SECONDS_MIN if claimed else self._pause * 2, self._poll)

    def failed(self) -> None:
        """Note that the last poll did not reach the database."""
        self._pause = min(self._pause * 2, PAUSE_SECONDS_MAX)

    def seconds(self) -> float:
        """Seconds to wait, with jitter so that workers which lost one database do not return in step."""
        return self._pause * random.uniform(0.75, 1.0)  # noqa: S311  # jitter, no secret


class PaceTrigger(BaseTrigger):  # type: ignore[misc]  # APScheduler has no type information
    """Fires at the pace's next time."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime:
        """Return the instant of the next poll; the first one is at once."""
        return now if previous_fire_time is None else now + timedelta(seconds=self._pace.seconds())


class Timers:
    """All that happens by itself in one worker process."""

    def __init__(
        self, worker: Worker, *, poll: float = POLL_SECONDS, sweep: float = SWEEP_SECONDS, listen: bool = True
    ) -> None:
        self.worker = worker
        self._pace = Pace(poll)
        self._told = False
        self._listener = Listener(worker.app.database_url, worker.queues, self._ring) if listen else None
        self._scheduler = BackgroundScheduler(
            timezone=UTC,
            executors={"default": ThreadPoolExecutor(4)},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )
        self._add("poll", self._poll, PaceTrigger(self._pace))
        self._add("heartbeat", self._beat, IntervalTrigger(seconds=HEARTBEAT_SECONDS, timezone=UTC))
        self._add("sweep", self._sweep, IntervalTrigger(seconds=sweep, timezone=UTC))
        self._add("periodic", worker.schedule, IntervalTrigger(seconds=PERIODIC_SECONDS, timezone=UTC))
        self._add("prune", self._prune, IntervalTrigger(seconds=PRUNE_SECONDS, jitter=PRUNE_SECONDS / 2, timezone=UTC))
        self._add("register", worker.register, IntervalTrigger(seconds=REGISTER_SECONDS, timezone=UTC))

    def start(self) -> None:
        """Start ticking: register, sweep and poll at once, then at their intervals."""
        self.worker.start_slots()
        self._scheduler.start()
        if self._listener is not None:
            self._listener.start()

    def stop(self) -> int:
        """Stop claiming, keep the leases during the worker's grace, stop all. Returns the number released."""
        self._scheduler.pause_job("poll")
        self._scheduler.pause_job("sweep")
        self._scheduler.pause_job("periodic")
        self._scheduler.pause_job("prune")
        if self._listener is not None:
            self._listener.stop()
        released = self.worker.stop()
        # Paused first: a job that falls due during the shutdown would be submitted to a closed executor.
        self._scheduler.pause()
        self._scheduler.shutdown(wait=True)
        return released

    def _add(self, name: str, call: Callable[[], Any], trigger: BaseTrigger) -> None:
        self._scheduler.add_job(guarded(name, call), trigger, id=name, name=name, next_run_time=datetime.now(UTC))

    def _poll(self) -> None:
        try:
            self._pace.found(self.worker.tick())
        except Exception:
            self._pace.failed()
            raise

    def _ring(self) -> None:
        guarded("bell", self.worker.tick)()

    def _beat(self) -> None:
        self.worker.beat(due_only=True)
        self.worker.settle_late()
        self.worker.limit()
        if self.worker.spent and not self._told:
            # As if from outside: the same way out, with the same grace for the other tasks.
            self._told = True
            os.kill(os.getpid(), signal.SIGTERM)

    def _prune(self) -> None:
        pruned = self.worker.prune()
        if pruned:
            log.info("pruned %d jobs", pruned)

    def _sweep(self) -> None:
        counts = self.worker.sweep()
        if counts.total:
            log.info("swept requeued=%d failed=%d superseded=%d", counts.requeued, counts.failed, counts.superseded)


def guarded(name: str, call: Callable[[], Any]) -> Callable[[], None]:
    """Wrap a timer's call: what it raises is logged, and the next tick comes all the same."""

    def run() -> None:
        try:
            call()
        except DATABASE_AWAY as away:
            log.warning("%s: the database did not answer: %s", name, describe(away))
        except NOT_MIGRATED as error:
            log.warning("%s: the database %s", name, what_is_missing(error))
        except Exception:
            log.exception("%s failed, it runs again at its next time", name)

    return run


def run(worker: Worker, *, poll: float = POLL_SECONDS, sweep: float = SWEEP_SECONDS, listen: bool = True) -> int:
    """Run `worker` until SIGTERM or SIGINT. `poll` and `sweep` are in seconds. Call it in the main thread.

    After the first signal nothing is claimed, running tasks have the worker's grace to end, and what is left
    is released; a second signal releases it at once. Returns the number of tasks whose threads still run
    then: they can write nothing more, and the process need not wait for them.
    """
    # A tick that is still busy with its time-out is skipped; that is no news.
    logging.getLogger("apscheduler").setLevel(logging.ERROR)
    signals = StopSignals()
    timers = Timers(worker, poll=poll, sweep=sweep, listen=listen)
    timers.start()
    log.info("worker %s runs %d tasks from %s", worker.worker_id, len(worker.app), ", ".join(worker.queues))
    signals.wait()
    log.info("worker %s stops, %d jobs run", worker.worker_id, worker.held)

    def hurry_at_second_signal() -> None:
        signals.wait()
        worker.hurry()

    threading.Thread(target=hurry_at_second_signal, name="second-signal", daemon=True).start()
    released = timers.stop()
    left = worker.held
    worker.close()
    log.info("worker %s has stopped, %d jobs released", worker.worker_id, released)
    return left


def every(seconds: float, call: Callable[[], Any], name: str) -> None:
    """Call `call` now and every `seconds` until SIGTERM or SIGINT; errors are logged."""
    signals = StopSignals()
    guarded(name, call)()
    while not signals.wait(seconds):
        guarded(name, call)()
