"""Errors as the caller reads them: one table from error to status, one sentence each."""

from __future__ import annotations

import json
import logging
from typing import Any

from flask import Flask, Response, request
from sqlalchemy.exc import DBAPIError, OperationalError
from werkzeug.exceptions import HTTPException

from hub import errors
from hub.first_look import DENIED
from hub.web.page import error_page, wants_page
from hub.wire.codec import CHUNK_BYTES, JSON, accepts_msgpack
from storage import AccessDenied, StorageError, Unavailable

log = logging.getLogger(__name__)

STATUS: dict[type[Exception], int] = {
    errors.Invalid: 422,
    errors.TooLarge: 413,
    errors.TooSlow: 408,
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.Missing: 404,
    errors.Conflict: 409,
    errors.TooMany: 429,
    errors.NotReady: 503,
    errors.WorkFailed: 500,
}

RETRY_SECONDS = 5
DRAIN_BYTES = 256 * 1024 * 1024
SENTENCE_MAX = 390
"""The Muse client shows the first 400 characters."""


def register(app: Flask) -> None:
    """Answer every error of the hub, of the store and of HTTP itself in the caller's own form."""
    app.register_error_handler(errors.HubError, _hub_error)
    app.register_error_handler(StorageError, _storage_error)
    app.register_error_handler(errors.CorruptMpack, _damaged)
    app.register_error_handler(DBAPIError, _database_error)
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(Exception, _unexpected)


def _hub_error(error: errors.HubError) -> Response:
    more: dict[str, Any] = {}
    headers: dict[str, str] = {}
    if isinstance(error, errors.Invalid):
        more["field"] = error.field
    if isinstance(error, errors.NotReady):
        more["why"] = error.why
    if isinstance(error, errors.NotReady | errors.TooMany):
        headers["Retry-After"] = str(error.retry_after)
    if isinstance(error, errors.WorkFailed):
        more["job_id"] = error.job_id
    if isinstance(error, errors.Unauthenticated):
        headers["WWW-Authenticate"] = "Bearer"
    status = next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
    return _say(status, error.code, error.sentence, more, headers)


def _storage_error(error: StorageError) -> Response:
    if isinstance(error, AccessDenied):
        log.error(DENIED, error.detail)
        sentence = "The object store does not let the hub in; nothing was changed. The operator finds it in the log."
        return _say(500, "STORE_DENIED", sentence)
    log.error("storage failed: %s", error)
    if isinstance(error, Unavailable):
        sentence = "The object store does not answer; nothing was changed. Send the same request again."
        return _say(503, "STORE_UNAVAILABLE", sentence, {}, {"Retry-After": str(RETRY_SECONDS)})
    return _say(500, "STORE_FAILED", "The object store lacks what it should have; the operator finds it in the log.")


def _damaged(error: errors.CorruptMpack) -> Response:
    log.error("an answer met damage before its first byte: %s", error)
    sentence = "A pack came damaged from the object store. Send the same request again; what is lost is named then."
    return _say(503, "MPACK_DAMAGED", sentence, {}, {"Retry-After": str(RETRY_SECONDS)})


def _database_error(error: DBAPIError) -> Response:
    if not error.connection_invalidated and not isinstance(error, OperationalError):
        return _unexpected(error)
    log.error("the database does not answer: %s", error.orig)
    sentence = "The database does not answer. Send the same request again: a repeat is safe."
    return _say(503, "DATABASE_UNAVAILABLE", sentence, {}, {"Retry-After": str(RETRY_SECONDS)})


def _http_error(error: HTTPException) -> Response:
    status = error.code or 500
    headers = {name: value for name, value in error.get_headers() if name in ("Allow", "Content-Range", "Retry-After")}
    return _say(status, error.name.upper().replace(" ", "_"), error.description or error.name, {}, headers)


def _unexpected(error: Exception) -> Response:
    log.error("unexpected error in %s %s", request.method, request.path, exc_info=error)
    return _say(500, "INTERNAL", "The hub failed; nothing was changed. The operator finds the reason in the log.")


def _say(
    status: int,
    code: str,
    sentence: str,
    more: dict[str, Any] | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    """The error as text for a msgpack caller (the Muse client prints it), as a page for a browser, else as JSON."""
    drain()
    if wants_page():
        return error_page(status, sentence, headers)
    if accepts_msgpack():
        return Response(f"{sentence[:SENTENCE_MAX]}\n", status, headers, content_type="text/plain; charset=utf-8")
    data = {"error": code, "message": sentence, **(more or {})}
    return Response(json.dumps(data) + "\n", status, headers, content_type=JSON)


def drain() -> None:
    """Read what the client is still sending, up to a limit: else it sees a broken pipe instead of the answer."""
    left = DRAIN_BYTES
    try:
        while left > 0 and (chunk := request.stream.read(min(CHUNK_BYTES, left))):
            left -= len(chunk)
    except (OSError, HTTPException, errors.TooSlow):
        log.info("the client went away, or fell silent, before its request ended")
