"""Dedup keys. A key names an *effect*: two requests with one key are served by one run that starts later.

The promise: after each committed enqueue some run of that effect starts later and sees it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tasks.errors import PayloadError
from tasks.job import DEDUP_MODES
from tasks.payload import check_word

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tasks.job import DedupMode


@dataclass(frozen=True, slots=True)
class Dedup:
    """Key of a task's jobs: the scope, and the named keyword arguments.

    `Dedup()` is one per scope; `Dedup(by=("mpack_key",))` one per scope and `mpack_key`.
    """

    by: tuple[str, ...] = ()
    mode: DedupMode = "join"

    def __post_init__(self) -> None:
        """Refuse what would make keys that mean nothing."""
        if isinstance(self.by, str):
            raise PayloadError("by", f"must be a tuple of names: ({self.by!r},)")
        check_word("mode", self.mode, DEDUP_MODES)

    def key(self, scope: str, kwargs: Mapping[str, Any]) -> str:
        """Make the key: a JSON array, so that no two different lists of components give one key.

        Raises PayloadError when a component is missing. A request without its component is never skipped and
        never joined to somebody else's: it is refused.
        """
        if not self.by and not scope:
            raise PayloadError("scope", "must be given: the task's jobs are one per scope")
        parts: list[str | int] = [scope]
        for name in self.by:
            value = kwargs.get(name)
            if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "":
                raise PayloadError(f"kwargs.{name}", "must be given, as text or a whole number: it is part of the key")
            parts.append(value)
        return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
