"""What an update would do to the files of a directory, and what of theirs it would destroy."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hub.client.errors import BadInput, LocalConflict
from hub.client.reserved import is_reserved
from hub.client.tree import MIB, open_regular

Signature = tuple[int, int, int, int]
"""Size, inode and times of a file: whoever changes it changes them."""


@dataclass(frozen=True, slots=True)
class Change:
    """`path` is to have the object `after`, None: to be gone. `seen` is the file that was there, None: none."""

    path: str
    after: str | None
    seen: Signature | None


@dataclass(frozen=True, slots=True)
class Conflict:
    """A path that the update would touch, and what was done to it here."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class _Found:
    """What is at a path: `kind` is file, directory, link, other, absent, or the reason why it can't be seen."""

    kind: str
    object_id: str | None = None
    signature: Signature | None = None


def plan(
    root: Path, known: Sequence[Mapping[str, str]], target: Mapping[str, str]
) -> tuple[list[Change], list[Conflict]]:
    """Compare the files below `root` with the manifest `target`, where that differs from one of `known`.

    `known` are manifests that the program itself wrote here: the last one, then that of an update which was
    interrupted. What is at a path may be replaced when one of them has it so; anything else that differs from
    what the update brings is a conflict. No other paths are looked at. Raises BadInput for an unreadable file.
    """
    last = known[0]
    touched = {path for manifest in known for path in {*manifest, *target} if manifest.get(path) != target.get(path)}
    changes: list[Change] = []
    conflicts: list[Conflict] = []
    for path in sorted(path for path in touched if not _is_left_out(path)):
        after = target.get(path)
        found = _look(root, path, known, target)
        if found.kind == "file" and path not in last and not _is_so_named(root, path):
            # This file system takes it for another path of the tree.
            found = _Found("absent")
        is_plain = found.kind in {"file", "absent"}
        if (is_plain and found.object_id == after) or (after is None and not is_plain):
            continue
        was_ours = is_plain and any(manifest.get(path) == found.object_id for manifest in known)
        if was_ours or (found.kind == "directory" and not _has_own_files(root, path, known, target)):
            changes.append(Change(path, after, found.signature))
        elif last.get(path) != after:
            conflicts.append(Conflict(path, _reason(found, known_here=path in last)))
    return changes, conflicts


def signature(location: Path) -> Signature | None:
    """Return the signature of what is at `location`, None when nothing is."""
    try:
        seen = location.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return seen.st_size, seen.st_ino, seen.st_mtime_ns, seen.st_ctime_ns


def _is_left_out(path: str) -> bool:
    return any(is_reserved(segment) for segment in path.split("/"))


def _look(root: Path, path: str, known: Sequence[Mapping[str, str]], target: Mapping[str, str]) -> _Found:
    place = root
    for segment in path.split("/")[:-1]:
        place /= segment
        above = place.relative_to(root).as_posix()
        if place.is_symlink():
            return _Found(f"«{above}» is a symbolic link")
        if not place.exists():
            return _Found("absent")
        if not place.is_dir():
            goes = above not in target and any(above in manifest for manifest in known)
            return _Found("absent" if goes else f"«{above}» is a file here")
    place = root / path
    seen = signature(place)
    if seen is None:
        return _Found("absent")
    mode = place.lstat().st_mode
    if stat.S_ISREG(mode):
        return _Found("file", _hash(place, path), seen)
    return _Found("directory" if stat.S_ISDIR(mode) else "link" if stat.S_ISLNK(mode) else "other")


def _hash(location: Path, path: str) -> str:
    digest = hashlib.sha256()
    with open_regular(location, path) as file:
        try:
            while chunk := file.read(MIB):
                digest.update(chunk)
        except OSError as error:
            raise BadInput(f"«{path}» cannot be read: {error.strerror}.") from None
    return digest.hexdigest()


def _is_so_named(root: Path, path: str) -> bool:
    place = root / path
    return place in place.parent.iterdir()


def _has_own_files(root: Path, path: str, known: Sequence[Mapping[str, str]], target: Mapping[str, str]) -> bool:
    """Whether the directory at `path` has something that the update would not remove by itself."""
    for folder, folders, names in os.walk(root / path):
        for place in (Path(folder, name) for name in (*folders, *names)):
            inside = place.relative_to(root).as_posix()
            found = _look(root, inside, known, target)
            was_ours = any(manifest.get(inside) == found.object_id for manifest in known)
            if found.kind != "directory" and (found.kind != "file" or inside in target or not was_ours):
                return True
    return False


def _reason(found: _Found, *, known_here: bool) -> str:
    if found.kind == "absent":
        return "deleted here"
    if found.kind == "file":
        return "changed here" if known_here else "a file of your own is there"
    names = {
        "directory": "a directory with files of your own is there",
        "link": "a symbolic link is there",
        "other": "something that is no file is there",
    }
    return names.get(found.kind, found.kind)


class Blocked(LocalConflict):
    """The update would destroy what was changed here; nothing was touched. `conflicts` has all of it."""

    SHOWN = 5

    def __init__(self, conflicts: list[Conflict]) -> None:
        shown = ", ".join(f"{item.path} ({item.reason})" for item in conflicts[: self.SHOWN])
        more = f" and {len(conflicts) - self.SHOWN} more" if len(conflicts) > self.SHOWN else ""
        super().__init__(
            f"Nothing was touched, because the update would overwrite: {shown}{more}. Move these aside or undo "
            "what you did to them, pull, and put your changes back."
        )
        self.details = {"conflicts": [{"path": item.path, "reason": item.reason} for item in conflicts]}
