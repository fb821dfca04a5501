"""A directory as a snapshot: which files belong to it, under which names, with which ids."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from hub.client.errors import BadInput
from hub.client.file_index import FileIndex
from hub.client.ignores import Ignores
from hub.client.reserved import Skipped, is_reserved
from hub.records import Invalid, check_path

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class File:
    """A file of the tree. `path` is relative with `/`; `size` is bytes."""

    path: str
    location: Path
    size: int
    object_id: str


@dataclass(frozen=True, slots=True)
class Tree:
    """The files of a directory in the order of their paths, and what is no file."""

    files: tuple[File, ...]
    skipped: tuple[Skipped, ...]
    ignored: int = 0
    """How many files and whole directories the rules leave out."""

    @property
    def manifest(self) -> dict[str, str]:
        """Path → object id."""
        return {file.path: file.object_id for file in self.files}


@dataclass(frozen=True, slots=True)
class _Found:
    path: str
    location: Path


def read_tree(
    directory: Path,
    hashed: Callable[[int, int], None] | None = None,
    *,
    rules: bool = False,
    tracked: Collection[str] = (),
    index: FileIndex | None = None,
) -> Tree:
    """Read and hash every file below `directory`; the same content gives the same Tree.

    Symlinks, sockets, pipes and devices are left out and listed; `.git`, `.muse` and `.packhouse` are left
    out; empty directories do not exist. With `rules`, what `.museignore` and `.gitignore` name is left out,
    except the paths in `tracked`. `hashed` is told how many files of how many are read. Files that `index` finds
    unchanged are not hashed. Raises BadInput for a name that is not UTF-8 and for what cannot be read.
    """
    walk = _Walk(directory, Ignores.at_root(directory) if rules else Ignores(), frozenset(tracked))
    found: list[_Found] = []
    skipped: list[Skipped] = []
    for item in walk:
        if isinstance(item, Skipped):
            skipped.append(item)
        else:
            found.append(item)
    found.sort(key=lambda item: item.path.encode())
    skipped.sort(key=lambda item: item.path.encode())
    files = []
    for number, item in enumerate(found, start=1):
        files.append(_read(item, index))
        if hashed is not None:
            hashed(number, len(found))
    return Tree(tuple(files), tuple(skipped), walk.ignored)


def open_regular(location: Path, shown: str) -> BinaryIO:
    """Open a regular file for reading, never through a symlink. `shown` names it in the BadInput raised."""
    # O_NONBLOCK: a pipe put in the file's place must not block the program for ever.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        file = os.fdopen(os.open(location, flags), "rb")
    except OSError as error:
        raise BadInput(f"«{shown}» cannot be read: {error.strerror}.") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise BadInput(f"«{shown}» was a file a moment ago and no longer is; try again.")
    return file


class _Walk:
    """Everything below a directory that a push takes, or leaves out by name."""

    def __init__(self, directory: Path, ignores: Ignores, tracked: frozenset[str]) -> None:
        self.ignored = 0
        self._tracked = tracked
        self._tracked_directories = {
            path[:at] for path in tracked for at, character in enumerate(path) if character == "/"
        }
        # None instead of rules: the directory is left out, but for what is tracked in it.
        self._waiting: list[tuple[str, Path, Ignores | None]] = [("", directory, ignores)]

    def __iter__(self) -> Iterator[_Found | Skipped]:
        while self._waiting:
            prefix, place, ignores = self._waiting.pop()
            if prefix and ignores is not None:
                ignores = ignores.below(prefix, place)
            for entry in _listed(prefix, place):
                path = prefix + _checked_name(entry.name, prefix)
                if not is_reserved(entry.name):
                    _check(path)
                    yield from self._take(entry, path, ignores)

    def _take(self, entry: os.DirEntry[str], path: str, ignores: Ignores | None) -> Iterator[_Found | Skipped]:
        is_directory = entry.is_dir(follow_symlinks=False)
        ignored = ignores is None or ignores.ignores(path, is_directory=is_directory)
        if ignored and path not in (self._tracked_directories if is_directory else self._tracked):
            self.ignored += ignores is not None
        elif is_directory:
            self._waiting.append((f"{path}/", Path(entry.path), None if ignored else ignores))
        elif entry.is_symlink():
            yield Skipped(path, "a symbolic link")
        elif entry.is_file(follow_symlinks=False):
            yield _Found(path, Path(entry.path))
        else:
            yield Skipped(path, "no regular file")


def _listed(prefix: str, place: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(place) as entries:
            return list(entries)
    except OSError as error:
        raise BadInput(f"The directory «{prefix or '.'}» cannot be read: {error.strerror}.") from None


def _checked_name(name: str, prefix: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        raw = os.fsencode(name)
        raise BadInput(f"A file name is not UTF-8: {raw!r} in «{prefix or '.'}»; rename it.") from None
    return name


def _check(path: str) -> None:
    try:
        check_path(path, "path")
    except Invalid as error:
        raise BadInput(f"A file cannot be part of a snapshot: {error.sentence}.") from None


def _read(item: _Found, index: FileIndex | None) -> File:
    digest = hashlib.sha256()
    size = 0
    with open_regular(item.location, item.path) as file:
        status = os.fstat(file.fileno())
        known = None if index is None else index.find(item.path, status)
        if known is not None:
            return File(item.path, item.location, status.st_size, known)
        try:
            while chunk := file.read(MIB):
                digest.update(chunk)
                size += len(chunk)
        except OSError as error:
            raise BadInput(f"«{item.path}» cannot be read: {error.strerror}.") from None
    if index is not None:
        index.note(item.path, status, digest.hexdigest())
    return File(item.path, item.location, size, digest.hexdigest())
