"""The packs that a working directory keeps: commits, snapshots and objects that need no network."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from hub.client import workdir
from hub.client.errors import BadInput
from hub.errors import HubError
from hub.pack.format import Entry, Kind
from hub.pack.reader import FileSource, PackReader, block_snapshots
from hub.records import Commit, Snapshot, parse_commit

NAME = re.compile(r"[0-9a-f]{64}\.mpack")


def read_commits(directory: Path) -> dict[str, Commit]:
    """Read every commit that is kept. Raises BadInput for a damaged pack."""
    return {commit.commit_id: commit for reader in _readers(directory) for commit in reader.commits()}


def read_manifest(directory: Path, commit_id: str) -> dict[str, str] | None:
    """Read the files of a commit; None when the commit or its snapshot is not kept."""
    for reader in _readers(directory):
        entry = reader.find(Kind.COMMIT, commit_id)
        if entry is not None:
            commit = parse_commit(reader.read(entry))
            snapshot = read_snapshot(directory, commit.snapshot_id)
            return None if snapshot is None else snapshot.manifest
    return None


def read_snapshot(directory: Path, snapshot_id: str) -> Snapshot | None:
    """Read a snapshot; None when it is not kept. Raises BadInput for a damaged pack."""
    for reader in _readers(directory):
        entry = reader.find(Kind.SNAPSHOT, snapshot_id)
        if entry is not None:
            block = reader.blocks[entry.block]
            found = block_snapshots(reader.raw_block(block), reader.entries.of_block(block))
            return next(snapshot for snapshot in found if snapshot.snapshot_id == snapshot_id)
    return None


def kept_ids(directory: Path, kind: Kind) -> set[str]:
    """Name everything of a kind that is kept. Raises BadInput for a damaged pack."""
    return {entity_id for reader in _readers(directory) for entity_id in reader.ids(kind)}


def iter_objects(directory: Path, object_ids: Collection[str]) -> Iterator[tuple[Entry, Iterator[bytes]]]:
    """Give those of `object_ids` that are kept, each once, with its content, whose hash is checked at its end.

    The content of one object must be read before the next is asked for. Raises BadInput for a damaged pack.
    """
    missing = set(object_ids)
    for reader in _readers(directory):
        for block in reader.blocks:
            if not missing or block.kind is not Kind.OBJECT:
                continue
            for entry in reader.entries.of_block(block):
                if entry.entity_id in missing:
                    missing.discard(entry.entity_id)
                    yield entry, reader.chunks(entry)


def _readers(directory: Path) -> Iterator[PackReader]:
    """Open one pack after the other: there may be more of them than files can be open."""
    folder = workdir.pack_path(directory, "any").parent
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    for name in names:
        if NAME.fullmatch(name):
            with _explained(name), (folder / name).open("rb") as file:
                yield PackReader.open(FileSource(file))


@contextmanager
def _explained(name: str) -> Iterator[None]:
    shown = f"{workdir.STATE}/packs/{name}"
    try:
        yield
    except HubError as error:
        raise BadInput(f"{shown} is damaged: {error.sentence}. Remove it, and clone afresh.") from None
    except OSError as error:
        raise BadInput(f"{shown} cannot be read: {error.strerror}.") from None
