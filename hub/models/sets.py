"""Large sets of ids in statements: as arrays, in bounded bites."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import islice

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format

BITE = 50_000
"""Ids a statement: 1.6 MB of array, far below what a statement may carry."""
BYTEA, BYTEA_ARRAY = 17, 1001
"""Postgres' numbers of these types."""


class Ids(list[bytes]):
    """Ids as one parameter of type `bytea[]`.

    Sent in Postgres' binary form: as text, which psycopg takes for a list, 50,000 ids cost a second and a half.
    """


class _IdsDumper(Dumper):
    format = Format.BINARY
    oid = BYTEA_ARRAY

    def dump(self, obj: Ids) -> bytes:
        head = struct.pack(">IIIII", 1, 0, BYTEA, len(obj), 1) if obj else struct.pack(">III", 0, 0, BYTEA)
        return head + b"".join(struct.pack(">I", len(item)) + item for item in obj)


psycopg.adapters.register_dumper(Ids, _IdsDumper)


def bites(ids: Iterable[str], size: int = BITE) -> Iterator[Ids]:
    """The ids as bytes, in lists of at most `size`; sorted ids make for sequential index reads."""
    iterator = iter(ids)
    while bite := Ids(bytes.fromhex(item) for item in islice(iterator, size)):
        yield bite
