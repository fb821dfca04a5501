"""The answer of a push that may take longer than the Muse client waits for a byte, which is 60 s.

It gets its first bytes before that: the head of an answer whose `message` begins with spaces, one every few seconds.
What happened is said at the end, a refusal by `ok: false` then, since the status 200 has gone out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import msgpack
from flask import Response, current_app, stream_with_context

from hub.wire.codec import MSGPACK, accepts_msgpack, answer

SILENT_SECONDS = 30.0
"""How long nothing is said, so that whatever ends by then has its own status."""
SPACE_SECONDS = 15.0
MESSAGE_BYTES = 1_000
"""Bytes of the message, announced before it is known: room for the longest sentence and for hours of spaces."""
SENTENCE_BYTES = 500
THREAD = "push"
"""The thread that takes the push in: it may outlive its request."""

Said = Mapping[str, Any]


def answer_in_time(work: Callable[[], Said]) -> Response:
    """Do the work and answer what it gives: `ok`, `message` and `branch_heads`. An error of its is raised, or said.

    A caller of JSON waits as long as it takes. A caller who goes away does not stop the work: its repeat finds it done.
    """
    if not accepts_msgpack():
        return answer(work())
    pool = ThreadPoolExecutor(1, THREAD)
    doing = pool.submit(work)
    pool.shutdown(wait=False)
    if wait([doing], SILENT_SECONDS).done:
        return answer(doing.result())
    return Response(stream_with_context(_spaces_first(doing)), content_type=MSGPACK)


def _spaces_first(doing: Future[Said]) -> Iterator[bytes]:
    packer = msgpack.Packer()
    yield packer.pack_map_header(3) + packer.pack("message") + b"\xda" + MESSAGE_BYTES.to_bytes(2, "big")
    left = MESSAGE_BYTES
    while not doing.done():
        if left > SENTENCE_BYTES:
            yield b" "
            left -= 1
        wait([doing], SPACE_SECONDS)
    said = _outcome(doing)
    sentence = str(said["message"]).encode()[:SENTENCE_BYTES].decode(errors="ignore").encode()
    yield sentence + b" " * (left - len(sentence))
    yield b"".join(packer.pack(key) + packer.pack(said[key]) for key in ("ok", "branch_heads"))


def _outcome(doing: Future[Said]) -> Said:
    """What the work gave, or the sentence of its error, as every other answer has it."""
    error = doing.exception()
    if error is None:
        return doing.result()
    if not isinstance(error, Exception):
        raise error
    refusal = current_app.make_response(current_app.handle_user_exception(error))
    return {"ok": False, "message": refusal.get_data(as_text=True).strip(), "branch_heads": {}}
