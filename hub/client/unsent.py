"""A push that was interrupted: its time is kept, so that pushing the same again makes the same pack.

The hub knows a pack by its digest, and an upload goes on where it broke off only for the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hub.client import workdir
from hub.client.errors import BadInput

NAME = "pushing.json"
KEPT = timedelta(hours=23)
"""The hub forgets an unfinished upload after a day."""


def begin(directory: Path, push: Mapping[str, str | None], now: datetime) -> datetime:
    """The time of the commit: that of an interrupted push of the same things, else `now`, which is noted.

    `push`: all that makes the commit, but for its time. A directory that cannot be written has no notes.
    """
    try:
        noted = workdir.read_state(directory, NAME, workdir.CONFIG_BYTES_MAX) or {}
    except BadInput:
        noted = {}
    begun_at = _moment(noted.get("at"))
    if noted.get("push") == dict(push) and begun_at is not None and timedelta(0) <= now - begun_at < KEPT:
        return begun_at
    try:
        workdir.write_state(directory, NAME, {"push": dict(push), "at": now.isoformat()})
    except OSError:
        return now
    return now


def end(directory: Path) -> None:
    """Forget what was begun: it has been pushed."""
    try:
        (directory / workdir.STATE / NAME).unlink(missing_ok=True)
    except OSError:
        return


def _moment(value: object) -> datetime | None:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return moment.astimezone(UTC) if moment is not None and moment.tzinfo else None
