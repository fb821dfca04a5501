"""Following a push until clones can have it."""

from __future__ import annotations

from hub.client.answers import PushStatus
from hub.client.errors import NotReady, Refused, Waiting
from hub.client.progress import Progress
from hub.client.transport import Remote

POLL_SECONDS = 0.5


def await_prebuilt(remote: Remote, push_id: str, progress: Progress) -> PushStatus:
    """Wait until the hub has the pack of a push ready for clones.

    Raises Refused when a job of the push has failed for good, NotReady when that takes longer than
    `remote.timing` allows.
    """
    timing = remote.timing
    give_up_at = timing.clock() + timing.wait_seconds
    progress.begin("Waiting for the hub", None)
    while True:
        status = remote.push_status(push_id)
        if status.status == "prebuilt":
            return status
        if status.status == "failed":
            reason = status.reason or "the hub gives no reason"
            raise Refused(200, "PUSH_FAILED", f"The push is stored, but its background work has failed: {reason}")
        waiting = tuple(Waiting(job.id, job.task, job.status, "") for job in status.jobs)
        if timing.clock() + POLL_SECONDS > give_up_at:
            jobs = "; ".join(str(job) for job in waiting)
            raise NotReady(
                f"The push is stored, but not ready for clones after {timing.wait_seconds:.0f} s: {jobs}.",
                retry_after=None,
                why=waiting,
            )
        progress.waiting("; ".join(str(job) for job in waiting))
        timing.sleep(POLL_SECONDS)
