"""At its start a process asks the object store for something: what is wrong is in the log before the first push."""

from __future__ import annotations

import logging
import threading

from storage import AccessDenied, StorageError, Store

log = logging.getLogger(__name__)

DENIED = (
    "the object store does not let the hub in (%s):"
    " look at S3_ENDPOINT_URL, S3_BUCKET, S3_ACCESS_KEY_ID and S3_SECRET_ACCESS_KEY"
)


def first_look(archive: Store) -> threading.Thread:
    """Look, in a thread of its own: a store that comes up later than the hub must not hold it up."""
    thread = threading.Thread(target=_look, args=(archive,), name="first-look", daemon=True)
    thread.start()
    return thread


def _look(archive: Store) -> None:
    try:
        next(archive.list(), None)
    except AccessDenied as error:
        log.error(DENIED, error.detail)  # noqa: TRY400  # a trace of the request adds nothing
    except StorageError as error:
        log.warning("the object store does not answer yet: %s", error.detail)
