"""Names that no push reads and no clone writes, and how what is left out is told."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

RESERVED = frozenset({".git", ".muse", ".packhouse", "git~1"})
"""Names that tools obey: a file in there is configuration, or code that runs. Never read, never written.

`git~1` is the short name that Windows gives to `.git`.
"""


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something in the directory (or in a pack) that is left out, and why."""

    path: str
    reason: str


def is_reserved(segment: str) -> bool:
    """Whether some file system would take `segment` for one of the RESERVED names.

    Case, characters that file systems ignore, and trailing dots and spaces make no difference to some.
    """
    if not segment.isascii():
        visible = "".join(character for character in segment if unicodedata.category(character) != "Cf")
        segment = unicodedata.normalize("NFKC", visible)
    return segment.rstrip(". ").casefold() in RESERVED
