"""Bytes that gc is about to delete, or has deleted: the mark that a push looks for before it relies on stored bytes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from sqlalchemy import DateTime, FetchedValue, bindparam, func, select, text
from sqlalchemy.dialects.postgresql import ARRAY, TEXT
from sqlalchemy.orm import Mapped, Session, mapped_column

from hub.models.base import Model

Role = Literal["archive", "cache"]


class Doomed(Model):
    """One key of a store. `deleted_at`: when its bytes were deleted; None: not yet."""

    __tablename__ = "doomed"

    store: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    doomed_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=FetchedValue())
    deleted_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))


def instant(session: Session) -> datetime:
    """Now, by the database's clock, which marks and pushes go by."""
    now: datetime = session.execute(select(func.clock_timestamp())).scalar_one()
    return now


def doom(session: Session, store: Role, keys: Sequence[str]) -> int:
    """Mark the keys for deletion, from now on; how many were not marked yet."""
    found = session.execute(DOOM, {"store": store, "keys": list(keys)})
    return len(found.all())


def spare(session: Session, store: Role, key: str) -> bool:
    """Take the mark away; True: there was one, and the bytes may be gone.

    Waits for a deletion that is under way.
    """
    return session.execute(SPARE, {"store": store, "key": key}).one_or_none() is not None


DOOM = text("""
INSERT INTO hub.doomed AS already (store, key)
SELECT :store, unnest(:keys)
ON CONFLICT (store, key) DO UPDATE SET doomed_at = now(), deleted_at = NULL WHERE already.deleted_at IS NOT NULL
RETURNING key
""").bindparams(bindparam("keys", type_=ARRAY(TEXT)))

SPARE = text("DELETE FROM hub.doomed WHERE store = :store AND key = :key RETURNING key")
