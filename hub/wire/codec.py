"""What goes over the wire: msgpack for callers that accept it, else JSON; bodies read under a cap."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import IO, Any

import msgpack
from flask import Response, request

from hub.errors import Invalid, TooLarge
from hub.manifest import ID_BYTES, check_id

MSGPACK = "application/x-msgpack"
JSON = "application/json"
MPACK = "application/x-mpack"
API = "/api/"
CHUNK_BYTES = 256 * 1024
SMALL_BYTES = 16 * 1024 * 1024
"""Cap of a request that lists ids: a `/fetch` may name every commit of the client, 66 bytes each."""


ITEMS = 300_000
"""Values in such a request: more than ids find room in it. One byte may say a map, which takes 64 in memory."""


ARRAYS = frozenset([*range(0x90, 0xA0), 0xDC, 0xDD])
MAPS = frozenset([*range(0x80, 0x90), 0xDE, 0xDF])
"""First bytes of lists and maps in msgpack."""
TOO_MANY = f"The body has more than {ITEMS} values; ask in smaller parts."


class CappedStream:
    """The request's body; raises TooLarge when more than `limit` bytes come, Invalid when it breaks off."""

    def __init__(self, stream: IO[bytes], limit: int, advice: str) -> None:
        self._stream = stream
        self._limit = limit
        self._advice = advice
        self._left = limit

    def read(self, size: int = CHUNK_BYTES, /) -> bytes:
        """Up to `size` bytes, at most CHUNK_BYTES: the layers below allot what is asked for. None at the end only."""
        try:
            chunk = self._stream.read(min(size, CHUNK_BYTES, self._left + 1))
        except OSError:
            # The server's, for chunks that are none, or a connection that broke: the client's doing, not the hub's.
            raise Invalid("body", "breaks off, or its chunks are not those of HTTP.") from None
        self._left -= len(chunk)
        if self._left < 0:
            raise TooLarge(f"The body is larger than {self._limit} bytes; {self._advice}")
        return chunk


def body(limit: int, advice: str = "send it in smaller parts.") -> CappedStream:
    """The request's body, at most `limit` bytes. Raises TooLarge at once when its Content-Length says more."""
    if request.content_length is not None and request.content_length > limit:
        raise TooLarge(f"The body has {request.content_length} bytes, allowed are {limit}; {advice}")
    return CappedStream(request.stream, limit, advice)


def accepts_msgpack() -> bool:
    """Whether the caller reads msgpack. The Muse client says so, and reads nothing else. The API speaks JSON only."""
    return MSGPACK in request.headers.get("Accept", "") and not request.path.startswith(API)


def answer(data: Mapping[str, Any], status: int = 200) -> Response:
    """`data` as the caller reads it."""
    if accepts_msgpack():
        return Response(msgpack.packb(data, use_bin_type=True), status, content_type=MSGPACK)
    return Response(json.dumps(data) + "\n", status, content_type=JSON)


def answer_ids(name: str, ids: bytes | bytearray) -> Response:
    """A list of ids, 32 bytes each as they come here, under one name. There may be a million of them."""
    if not accepts_msgpack():
        return answer({name: [ids[at : at + ID_BYTES].hex() for at in range(0, len(ids), ID_BYTES)]})
    packer = msgpack.Packer()
    head = packer.pack_map_header(1) + packer.pack(name) + packer.pack_array_header(len(ids) // ID_BYTES)

    def chunks() -> Iterator[bytes]:
        yield head
        step = 1_000 * ID_BYTES
        for start in range(0, len(ids), step):
            some = ids[start : start + step]
            yield b"".join(packer.pack(some[at : at + ID_BYTES].hex()) for at in range(0, len(some), ID_BYTES))

    return Response(chunks(), content_type=MSGPACK)


def read_whole(limit: int) -> bytes:
    """The request's body. Raises TooLarge above `limit` bytes, Invalid when it breaks off."""
    stream = body(limit)
    return b"".join(iter(stream.read, b""))


def read_map(limit: int = SMALL_BYTES) -> dict[str, Any]:
    """The request's body as a map with text keys: msgpack or JSON, by its Content-Type.

    Raises Invalid for anything else and TooLarge above `limit` bytes.
    """
    raw = read_whole(limit)
    try:
        data = _from_json(raw) if request.mimetype == JSON else _from_msgpack(raw)
    except (ValueError, RecursionError, msgpack.UnpackException) as error:
        kind = "JSON" if request.mimetype == JSON else "msgpack"
        raise Invalid("body", f"must be one {kind} map ({type(error).__name__}).") from None
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise Invalid("body", "must be a map with text keys.")
    return data


def _from_json(raw: bytes) -> Any:
    if sum(raw.count(mark) for mark in (b",", b"[", b"{")) > ITEMS:
        raise TooLarge(TOO_MANY)
    return json.loads(raw)


def _from_msgpack(raw: bytes) -> Any:
    """Decode, once it is known that there are not too many values: counted by their heads, with nothing built."""
    walker = msgpack.Unpacker(max_buffer_size=max(len(raw), 1))
    walker.feed(raw)
    waiting, count = 1, 0
    while waiting:
        at = walker.tell()
        head = raw[at] if at < len(raw) else None
        if head in ARRAYS:
            inside = walker.read_array_header()
        elif head in MAPS:
            inside = 2 * walker.read_map_header()
        else:
            walker.skip()
            inside = 0
        waiting += inside - 1
        count += 1
        if count > ITEMS:
            raise TooLarge(TOO_MANY)
    return msgpack.unpackb(raw, raw=False)


def take_ids(data: Mapping[str, Any], field: str) -> list[str]:
    """A list of ids, each 64 lower-case hex digits; empty when the field is absent."""
    value = data.get(field, [])
    if not isinstance(value, list):
        raise Invalid(field, "must be a list of ids.")
    return [check_id(item, f"{field}[{place}]") for place, item in enumerate(value)]


def take_text(data: Mapping[str, Any], field: str) -> str:
    """A text field that must be there."""
    value = data.get(field)
    if not isinstance(value, str) or not is_unicode(value):
        raise Invalid(field, "must be text.")
    return value


def is_unicode(text: str) -> bool:
    """Whether the text can be sent on: JSON may write half a surrogate pair, which is no character."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def take_flag(data: Mapping[str, Any], field: str) -> bool:
    """A yes/no field; False when it is absent."""
    value = data.get(field, False)
    if not isinstance(value, bool):
        raise Invalid(field, "must be true or false.")
    return value


def take_count(data: Mapping[str, Any], field: str) -> int:
    """A whole number above zero."""
    value = data.get(field)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise Invalid(field, "must be a whole number above 0.")
    return value
