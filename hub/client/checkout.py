"""Writing the files of a snapshot into a fresh directory. Paths from the wire are not to be trusted."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hub.client.errors import LocalConflict, VerificationFailed, printable
from hub.client.progress import Progress
from hub.client.tree import Skipped, is_reserved
from hub.pack.reader import PackReader
from hub.records import EMPTY_OBJECT_ID, Snapshot


def write_tree(reader: PackReader, snapshot: Snapshot, root: Path, progress: Progress) -> tuple[Skipped, ...]:
    """Write all files of `snapshot` below the empty directory `root`; return what was left out.

    Left out is what lies in a `.git`, `.muse` or `.packhouse`: a clone must not bring configuration or hooks
    that another program obeys. The pack must have passed `verify_pack` and `check_complete`. Raises
    LocalConflict when the file system cannot hold the tree, VerificationFailed for a path that leads out.
    """
    places: dict[str, list[str]] = {}
    skipped: list[Skipped] = []
    for path, object_id in snapshot.manifest.items():
        if any(is_reserved(segment) for segment in path.split("/")):
            skipped.append(Skipped(path, "a clone never writes into .git, .muse or .packhouse"))
        else:
            places.setdefault(object_id, []).append(path)
    files = Files(root)
    progress.begin("Writing files", sum(map(len, places.values())))
    for path in places.pop(EMPTY_OBJECT_ID, []):
        files.write(path, ())
    for entry, chunks in reader.iter_objects():
        paths = places.pop(entry.entity_id, [])
        if paths:
            files.write(paths[0], chunks)
            for path in paths[1:]:
                files.copy(paths[0], path)
            progress.at(files.written)
    if places:
        raise VerificationFailed(f"The pack lacks object {min(places)}.")
    return tuple(skipped)


class Files:
    """Files below one directory, each created new: nothing is overwritten, no symlink is followed."""

    def __init__(self, root: Path) -> None:
        """Begin below the existing directory `root`."""
        self.written = 0
        self._root = root.resolve(strict=True)
        self._directories = {self._root}

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write a file of the content `chunks`. Raises LocalConflict, VerificationFailed."""
        with _explained(path):
            target = self._place(path)
            with target.open("xb") as out:
                out.writelines(chunks)
        self.written += 1

    def copy(self, source: str, path: str) -> None:
        """Write a file of the same content as `source`. Raises LocalConflict, VerificationFailed."""
        with _explained(path):
            target = self._place(path)
            with self._root.joinpath(source).open("rb") as content, target.open("xb") as out:
                shutil.copyfileobj(content, out)
        self.written += 1

    def _place(self, path: str) -> Path:
        """Return where `path` goes, its directory made.

        The records' rules allow no path that leads out; this holds should they ever, or should something else
        put a link there meanwhile.
        """
        target = self._root.joinpath(*path.split("/"))
        if target.parent not in self._directories:
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.parent.resolve(strict=True) != target.parent or not target.is_relative_to(self._root):
                raise VerificationFailed(f"The path «{printable(path)}» leads out of the directory.")
            self._directories.add(target.parent)
        return target


@contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except (FileExistsError, NotADirectoryError):
        raise LocalConflict(
            f"«{path}» cannot be written: this file system takes it for another path of the tree "
            "(case or Unicode form make no difference here)."
        ) from None
    except OSError as error:
        raise LocalConflict(f"«{path}» cannot be written: {error.strerror}.") from None
