"""The ids of files as they were last read, so that a push reads only those that have changed since.

An entry counts while the file's size, times and inode are what they were. A file that was written while the index was
being made could be written once more without any of them changing, since clocks of file systems tick slowly: such a
file is not entered, which is git's rule for racy entries. The index is a hint: one that is damaged is as good as none.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from hub.client.errors import BadInput
from hub.client.shape import is_id
from hub.client.workdir import STATE, read_state

NAME = "files.json"
BYTES_MAX = 256 * 1024 * 1024

Mark = tuple[int, int, int, int]
"""Size in bytes, modification and change time in nanoseconds, inode."""


def mark_of(status: os.stat_result) -> Mark:
    """What tells one state of a file from another."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


class FileIndex:
    """What is known of the files of `directory`; empty where that has no `.packhouse` yet."""

    def __init__(self, directory: Path) -> None:
        """Read what is known. The index is closed by `save`, or by `close`."""
        self._target = directory / STATE / NAME
        self._fresh = self._target.with_name(f"{NAME}.{secrets.token_hex(8)}.tmp")
        self._known = _load(directory)
        self._noted: dict[str, tuple[Mark, str]] = {}
        self._begun_ns = 0
        # By the clock that the files have, which may be another machine's. Without that, nothing is noted.
        with suppress(OSError):
            self._fresh.touch(exist_ok=False)
            self._begun_ns = self._fresh.stat().st_mtime_ns

    def find(self, path: str, status: os.stat_result) -> str | None:
        """Return the id of a file that is as it was, None for one that must be read."""
        entry = self._known.get(path)
        if entry is None or entry[0] != mark_of(status):
            return None
        self._noted[path] = entry
        return entry[1]

    def note(self, path: str, status: os.stat_result, object_id: str) -> None:
        """Remember a file. `status`: what it was before it was read."""
        if max(status.st_mtime_ns, status.st_ctime_ns) < self._begun_ns:
            self._noted[path] = (mark_of(status), object_id)

    def save(self) -> None:
        """Write what was noted; a reader sees the old index or the new one, nothing between."""
        with suppress(OSError):  # next time all is read again
            if self._begun_ns and self._noted != self._known:
                self._fresh.write_text(json.dumps({"files": self._noted}, ensure_ascii=False), encoding="utf-8")
                self._fresh.replace(self._target)
        self.close()

    def close(self) -> None:
        """Leave no half-written index behind. Repeating it is harmless."""
        with suppress(OSError):
            self._fresh.unlink(missing_ok=True)


def _load(directory: Path) -> dict[str, tuple[Mark, str]]:
    try:
        files = (read_state(directory, NAME, BYTES_MAX) or {}).get("files")
    except BadInput:
        return {}
    if not isinstance(files, Mapping):
        return {}
    known = {}
    for path, entry in files.items():
        match entry:
            case [[int(size), int(mtime), int(ctime), int(inode)], object_id] if is_id(object_id):
                known[path] = ((size, mtime, ctime, inode), str(object_id))
            case _:
                return {}
    return known
