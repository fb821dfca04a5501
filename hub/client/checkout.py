"""Writing the files of a snapshot into a fresh directory. Paths from the wire are not to be trusted."""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Self

from hub.client.errors import LocalConflict, VerificationFailed, printable
from hub.client.progress import Progress
from hub.client.reserved import Skipped, is_reserved
from hub.pack.format import CHUNK, MAX_OBJECT_BLOCK, Block, Kind
from hub.pack.reader import PackReader
from hub.pack.verify import check_object_block
from hub.records import EMPTY_OBJECT_ID, Snapshot

if TYPE_CHECKING:
    from concurrent.futures import Future

NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL
"""A file that is there already, or a link, is refused."""
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
        if any(map(is_reserved, path.split("/"))):
            skipped.append(Skipped(path, "a clone never writes into .git, .muse or .packhouse"))
        else:
            places.setdefault(object_id, []).append(path)
    progress.begin("Unpacking", sum(block.raw_length for block in reader.blocks), "bytes")
    with Files(root) as files:
        for path in places.pop(EMPTY_OBJECT_ID, []):
            files.write(path, ())

        def unpack(block: Block) -> int:
            for object_id, content in check_object_block(reader, block, _stored(file, block)):
                paths = places.get(object_id)
                if paths is None:
                    for _ in content:
                        pass
                else:
                    files.write(paths[0], content)
                    for path in paths[1:]:
                        files.copy(paths[0], path)
            return block.raw_length

        done = 0
        for raw_length in in_threads(unpack, [block for block in reader.blocks if block.kind is Kind.OBJECT]):
            done += raw_length
            progress.at(done)
    return tuple(skipped)


def in_threads(work: Callable[[Block], int], blocks: Sequence[Block]) -> Iterator[int]:
    """Do `work` for every block, for several large ones at once, and give the results. The first error ends it all."""
    if all(block.raw_length <= MAX_OBJECT_BLOCK for block in blocks):
        yield from map(work, blocks)
        return
    from concurrent.futures import ThreadPoolExecutor

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
    """Files below one directory, each created new: nothing is overwritten, no symlink is followed.

    A context manager. Ten thousand small files are a usual tree: each costs three calls of the system, no more.
    """

    def __init__(self, root: Path) -> None:
        """Begin below the existing directory `root`."""
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        self._directories = {""}

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of the directory."""
        os.close(self._root)

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write a file of the content `chunks`. Raises LocalConflict, VerificationFailed."""
        try:
            descriptor = os.open(self._place(path), NEW_FILE, 0o666, dir_fd=self._root)
            try:
                for chunk in chunks:
                    written = os.write(descriptor, chunk)
                    while written < len(chunk):
                        written += os.write(descriptor, memoryview(chunk)[written:])
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _explained(path, error) from None

    def copy(self, source: str, path: str) -> None:
        """Write a file of the same content as the file `source`. Raises LocalConflict, VerificationFailed."""
        try:
            content = os.fdopen(os.open(self._place(source), os.O_RDONLY, dir_fd=self._root), "rb")
        except OSError as error:
            raise _explained(source, error) from None
        with content:
            self.write(path, iter(lambda: content.read(CHUNK), b""))

    def _place(self, path: str) -> str:
        """Return where `path` goes, relative to the root, its directory made.

        The records' rules allow no path that leads out; this holds should they ever, or should something else
        put a link there meanwhile.
        """
        directory = path.rpartition("/")[0]
        if directory not in self._directories:
            place = ""
            for segment in directory.split("/"):
                place = f"{place}/{segment}" if place else segment
                if segment in {"", ".", ".."} or not self._is_directory(place):
                    raise VerificationFailed(f"The path «{printable(path)}» leads out of the directory.")
        return path

    def _is_directory(self, place: str) -> bool:
        """Make the directory, if it is not there. False: there is something else, a link perhaps."""
        if place not in self._directories:
            try:
                os.mkdir(place, dir_fd=self._root)
            except FileExistsError:
                # Another thread's, or the file system takes this name for that of one which is there.
                mode = os.stat(place, dir_fd=self._root, follow_symlinks=False).st_mode
                if stat.S_ISREG(mode):
                    raise
                if not stat.S_ISDIR(mode):
                    return False
            self._directories.add(place)
        return True


def _explained(path: str, error: OSError) -> LocalConflict:
    if isinstance(error, (FileExistsError, NotADirectoryError, IsADirectoryError)):
        return LocalConflict(
            f"«{path}» cannot be written: this file system takes it for another path of the tree "
            "(case or Unicode form make no difference here)."
        )
    return LocalConflict(f"«{path}» cannot be written: {error.strerror}.")
