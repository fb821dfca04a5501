"""The bytes of a store as an answer: they go from its connection to the client's, past Python where that can be."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping

from flask import Response, request

from storage import Body

FIRST_BYTES = 64 * 1024
"""These go the way of every answer: when the server comes for more, they and its head are out."""
HTTP_1 = ("HTTP/1.0", "HTTP/1.1")
"""In other versions a body has frames within, which only the server can make."""


def stream(
    body: Body, content_type: str, *, tail: bytes = b"", status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """An answer of `body`, which it closes, and `tail`. Raises storage's errors: the first bytes are read at once."""
    try:
        first = body.read(FIRST_BYTES)
    except BaseException:
        body.close()
        raise
    length = {"Content-Length": str(body.size + len(tail))}
    response = Response(
        _pieces(first, body, tail, _client()), status, {**(headers or {}), **length}, content_type=content_type
    )
    response.call_on_close(body.close)
    return response


def begun(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The same chunks, of which the first one is there: what fails until then is an answer, not one cut short."""
    first = next(chunks, b"")

    def all_of_them() -> Iterator[bytes]:
        yield first
        yield from chunks

    return all_of_them()


def _client() -> socket.socket | None:
    """The connection of the client, where the server shows it, and bytes of the answer can be put on it as they are."""
    found = request.environ.get("gunicorn.socket")
    is_raw = isinstance(found, socket.socket) and request.environ["SERVER_PROTOCOL"] in HTTP_1
    return found if is_raw else None


def _pieces(first: bytes, body: Body, tail: bytes, client: socket.socket | None) -> Iterator[bytes]:
    with body:
        yield first
        if client is not None:
            body.send_to(client)
        yield from body
    yield tail
