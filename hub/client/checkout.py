"""Writing the files of a snapshot into a fresh directory. Paths from the wire are not to be trusted."""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from hub.client.errors import LocalConflict, VerificationFailed, printable
from hub.client.progress import Progress
from hub.client.tree import Skipped, is_reserved
from hub.pack.format import CHUNK, MAX_OBJECT_BLOCK, Block, Kind
from hub.pack.reader import PackReader
from hub.pack.verify import check_object_block
from hub.records import EMPTY_OBJECT_ID, Snapshot

THREADS = min(4, os.cpu_count() or 1)
"""Hashing, decompressing and writing of large objects let other threads run meanwhile."""


def write_tree(
    file: BinaryIO, reader: PackReader, snapshot: Snapshot, root: Path, progress: Progress
) -> tuple[Skipped, ...]:
    """Write all files of `snapshot` below the empty directory `root`; verify all objects of the pack in `file`.

    Returns what was left out: what lies in a `.git`, `.muse` or `.packhouse`, for a clone must not bring
    configuration or hooks that another program obeys. The pack must have passed `verify_records` and
    `check_complete`. What was written is worth nothing when this raises: LocalConflict when the file system
    cannot hold the tree, VerificationFailed for a path that leads out, Invalid for an object that is not its id.
    """
    places: dict[str, list[str]] = {}
    skipped: list[Skipped] = []
    for path, object_id in snapshot.manifest.items():
        if any(is_reserved(segment) for segment in path.split("/")):
            skipped.append(Skipped(path, "a clone never writes into .git, .muse or .packhouse"))
        else:
            places.setdefault(object_id, []).append(path)
    files = Files(root)
    progress.begin("Unpacking", sum(block.raw_length for block in reader.blocks), "bytes")
    for path in places.pop(EMPTY_OBJECT_ID, []):
        files.write(path, ())

    def unpack(block: Block) -> int:
        for entry, content in check_object_block(reader, block, _stored(file, block)):
            paths = places.get(entry.entity_id)
            if paths is None:
                for _ in content:
                    pass
            else:
                files.write(paths[0], content)
                for path in paths[1:]:
                    files.copy(paths[0], path)
        return block.raw_length

    done = 0
    for raw_length in in_threads(unpack, (block for block in reader.blocks if block.kind is Kind.OBJECT)):
        done += raw_length
        progress.at(done)
    return tuple(skipped)


def in_threads(work: Callable[[Block], int], blocks: Iterable[Block]) -> Iterator[int]:
    """Do `work` for every block, for several large ones at once, and give the results. The first error ends it all."""
    waiting: deque[Future[int]] = deque()
    with ThreadPoolExecutor(THREADS) as pool:
        try:
            for block in blocks:
                if block.raw_length <= MAX_OBJECT_BLOCK:
                    # Many small files are work for the interpreter, which threads only disturb.
                    yield work(block)
                else:
                    waiting.append(pool.submit(work, block))
                if len(waiting) > THREADS:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _stored(file: BinaryIO, block: Block) -> Iterator[bytes]:
    """Read a block by itself: the position of `file` is nobody's here."""
    end = block.offset + block.stored_length
    for offset in range(block.offset, end, CHUNK):
        yield os.pread(file.fileno(), min(CHUNK, end - offset), offset)


class Files:
    """Files below one directory, each created new: nothing is overwritten, no symlink is followed."""

    def __init__(self, root: Path) -> None:
        """Begin below the existing directory `root`."""
        self._root = root.resolve(strict=True)
        self._directories = {self._root}

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write a file of the content `chunks`. Raises LocalConflict, VerificationFailed."""
        with _explained(path):
            target = self._place(path)
            with target.open("xb") as out:
                out.writelines(chunks)

    def copy(self, source: str, path: str) -> None:
        """Write a file of the same content as `source`. Raises LocalConflict, VerificationFailed."""
        with _explained(path):
            target = self._place(path)
            with self._root.joinpath(source).open("rb") as content, target.open("xb") as out:
                shutil.copyfileobj(content, out)

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
