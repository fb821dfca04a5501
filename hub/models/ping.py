"""A connection that lay unused in the pool is asked whether it still lives; one that was just used is believed.

SQLAlchemy's own pre-ping asks before every use, which is a tenth of what a short request costs. What breaks within the
seconds that are not looked at breaks one request, as it would a moment later: an answer 503, whose repeat is safe.
"""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.pool import ConnectionPoolEntry

IDLE_SECONDS = 10.0
USED_AT = "packhouse.used_at"


def ping_idle(engine: Engine) -> None:
    """Let the pool of this engine do so."""
    dialect: Any = engine.dialect

    @event.listens_for(engine, "checkin")
    def note(_connection: object, entry: ConnectionPoolEntry) -> None:
        entry.info[USED_AT] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def ping(connection: Any, entry: ConnectionPoolEntry, _proxy: object) -> None:
        used_at = entry.info.get(USED_AT)
        if used_at is None or time.monotonic() - used_at < IDLE_SECONDS:
            return
        try:
            dialect.do_ping(connection)
        except dialect.loaded_dbapi.Error as error:
            # The pool then drops all connections of this age, and makes another one.
            raise InvalidatePoolError from error
