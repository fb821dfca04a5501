"""The tree of one commit as a tar or zip file, made while it is sent.

The same commit, name and version of the hub give the same bytes: files by path, the commit's time, mode 644, no owner.
In memory are the manifest, the places of some hundred files, and a few MiB of blocks.
"""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Protocol
from uuid import UUID

import zstandard

from hub.locate import BlockReader, locate_objects
from hub.records import EMPTY_OBJECT_ID
from hub.services import Services

FILES = 500
"""Files that are located together."""
OUT_BYTES = 256 * 1024
"""Bytes handed on at a time, about."""
ZIP_YEARS = (1980, 2107)
"""What a zip file can say of a time."""

Files = Iterator[tuple[str, int, Iterator[bytes]]]
"""Path, size and content of each file; the content must be read before the next file is asked for."""


def read_files(services: Services, repository_id: UUID, manifest: dict[str, str]) -> Files:
    """The files of a snapshot by path. Raises FetchNotIndexed, CorruptMpack and storage's errors."""
    paths = iter(sorted(manifest))
    while some := list(islice(paths, FILES)):
        ids = sorted({manifest[path] for path in some} - {EMPTY_OBJECT_ID})
        with services.sessions() as session:
            places = {place.entry.entity_id: place for place in locate_objects(session, repository_id, ids)}
        reader = BlockReader(services.archive, repository_id, places.values())
        for path in some:
            place = places.get(manifest[path])
            if place is None:
                yield path, 0, iter(())
            else:
                yield path, place.entry.raw_length, reader.chunks(place)


class Squeeze(Protocol):
    """A compressor of a stream."""

    def compress(self, data: bytes, /) -> bytes:
        """Take some bytes in, give some out."""
        ...

    def flush(self) -> bytes:
        """Give the rest."""
        ...


def tar_gz(files: Files, folder: str, at: datetime) -> Iterator[bytes]:
    """A gzipped tar file."""
    return _squeezed(_tar(files, folder, at), zlib.compressobj(6, wbits=31))


def tar_zst(files: Files, folder: str, at: datetime) -> Iterator[bytes]:
    """A tar file compressed with zstd."""
    return _squeezed(_tar(files, folder, at), zstandard.ZstdCompressor(level=3, threads=0).compressobj())


def zip_file(files: Files, folder: str, at: datetime) -> Iterator[bytes]:
    """A zip file, of the 64-bit form where a size needs it."""
    first, last = ZIP_YEARS
    utc = at.astimezone(UTC)
    when = utc if first <= utc.year <= last else datetime(min(max(utc.year, first), last), 1, 1, tzinfo=UTC)
    sink = _Sink()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as out:
        for path, size, content in files:
            info = zipfile.ZipInfo(f"{folder}/{path}", when.timetuple()[:6])
            info.compress_type = zipfile.ZIP_DEFLATED
            info.create_system = 3  # Unix, on whatever machine the hub runs
            info.external_attr = (0o100644) << 16
            with out.open(info, "w", force_zip64=size >= zipfile.ZIP64_LIMIT) as entry:
                for chunk in content:
                    entry.write(chunk)
                    yield from sink.taken(OUT_BYTES)
            yield from sink.taken(OUT_BYTES)
    yield from sink.taken(1)


FORMATS: dict[str, tuple[str, Callable[[Files, str, datetime], Iterator[bytes]]]] = {
    ".tar.zst": ("application/zstd", tar_zst),
    ".tar.gz": ("application/gzip", tar_gz),
    ".zip": ("application/zip", zip_file),
}
"""Ending → media type, and what makes the file."""


def _tar(files: Files, folder: str, at: datetime) -> Iterator[bytes]:
    for path, size, content in files:
        info = tarfile.TarInfo(f"{folder}/{path}")
        info.size, info.mtime, info.mode = size, int(at.timestamp()), 0o644
        yield info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")
        yield from content
        yield bytes(-size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _squeezed(pieces: Iterator[bytes], squeeze: Squeeze) -> Iterator[bytes]:
    held = bytearray()
    for piece in pieces:
        held += squeeze.compress(piece)
        if len(held) >= OUT_BYTES:
            yield bytes(held)
            held.clear()
    yield bytes(held) + squeeze.flush()


class _Sink:
    """What a zip file is written to: it can't seek, so that sizes come behind each file."""

    def __init__(self) -> None:
        self._held = bytearray()

    def write(self, data: bytes) -> int:
        self._held += data
        return len(data)

    def flush(self) -> None:
        """Nothing waits for it."""

    def close(self) -> None:
        """Nothing is held."""

    def taken(self, least: int) -> Iterator[bytes]:
        """What was written since, once it is `least` bytes."""
        if len(self._held) >= least:
            yield bytes(self._held)
            self._held.clear()
