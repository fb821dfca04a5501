"""Large sets of ids in statements: as arrays, in bounded bites."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

BITE = 50_000
"""Ids a statement: 1.6 MB of array, far below what a statement may carry."""


def bites(ids: Iterable[str], size: int = BITE) -> Iterator[list[bytes]]:
    """The ids as bytes, in lists of at most `size`; sorted ids make for sequential index reads."""
    iterator = iter(ids)
    while bite := [bytes.fromhex(item) for item in islice(iterator, size)]:
        yield bite
