"""What was built for fetches, on its way into the cache."""

from __future__ import annotations

from typing import BinaryIO

from sqlalchemy.orm import Session

from hub.models.doomed import spare
from hub.services import Services
from storage import AlreadyExists


def store_cached(services: Services, session: Session, key: str, file: BinaryIO) -> None:
    """Put what was built for a fetch into the cache, under its digest; for a day at least, if the caller commits.

    One that lies there already may be marked by gc: the mark goes, and it is put again. Raises storage's errors.
    """
    file.seek(0)
    try:
        services.cache.put(key, file, if_absent=True)
    except AlreadyExists:
        if spare(session, "cache", key):
            file.seek(0)
            services.cache.put(key, file)
