"""`mpack.repack`: folds many small packs of a repository into one.

Every push brings a pack of its own, or several. A fetch that reads two hundred packs asks the store two hundred times,
and two hundred whole manifests take the room that their differences would not.

The sizes of the packs are kept geometric: the smallest ones are folded up to the last that is smaller than all before
it together. An object is then copied into a pack about twice as large each time, so n pushes cost O(n log n) in all,
and leave O(log n) packs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from uuid import UUID

from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session

from hub.archive import download_pack, secure_pack, store_pack
from hub.indexing import write_index
from hub.keys import archive_key
from hub.models import Mpack
from hub.models.doomed import doom, instant
from hub.models.repository import lock_repository
from hub.pack.format import Kind, PackSummary
from hub.pack.reader import FileSource, PackReader, block_commits, block_snapshots
from hub.pack.writer import PackWriter
from hub.services import Services

FOLD_MIN = 16
"""Packs that are folded at a time, at least."""
FOLD_BYTES_MAX = 2 * 1024**3
"""Bytes of a folded pack, about; what would make it larger stays as it is."""
COPY_BYTES = 512 * 1024
"""Blocks with at least so many raw bytes are copied as they lie; the entries of smaller ones are packed anew."""

INDEXED = ("live", True)


def fold_count(sizes: Sequence[int]) -> int:
    """How many of the smallest packs are to be folded; 0: not yet. `sizes` are ascending."""
    total = count = 0
    for number, size in enumerate(sizes):
        if total + size > FOLD_BYTES_MAX:
            break
        if size < total:
            count = number + 1
        total += size
    return count if count >= FOLD_MIN else 0


def is_due(session: Session, repository_id: UUID) -> bool:
    """Whether the repository has enough small packs, indexed or not yet."""
    sizes = session.scalars(
        select(Mpack.size).where(Mpack.repository_id == repository_id, Mpack.state == "live").order_by(Mpack.size)
    )
    return fold_count(sizes.all()) > 0


def repack(
    services: Services, session: Session, repository_id: UUID, checkpoint: Callable[[], None] = lambda: None
) -> dict[str, int]:
    """Fold what is due; `folded` packs have become one of `size` bytes.

    New bytes go first (0005); then, in the caller's transaction and under the repository's lock, the new pack gets its
    row and its index, and the old ones lose theirs. Their bytes stay for the fetches that have read the old rows; gc
    deletes them a day later (0013). Another run that was quicker, or a pack that was set aside meanwhile: nothing is
    changed. Raises CorruptMpack and storage's errors.
    """
    with services.sessions() as reading:  # not the caller's: no transaction stays open while packs are copied
        chosen, begun_at = _chosen(reading, repository_id), instant(reading)
    if not chosen:
        return {"folded": 0}
    with tempfile.TemporaryFile() as file:
        writer = PackWriter(file)
        for mpack_id in chosen:
            checkpoint()
            with tempfile.TemporaryFile() as part:
                download_pack(services, repository_id, mpack_id, part)
                copy_pack(PackReader.open(FileSource(part)), writer)
        summary = writer.finish()
        store_pack(services, repository_id, summary.mpack_id, file)
        lock_repository(session, repository_id)
        old = [mpack_id for mpack_id in chosen if mpack_id != summary.mpack_id]
        states = dict(_states(session, repository_id, [*chosen, summary.mpack_id]))
        if any(states.get(mpack_id) != INDEXED for mpack_id in chosen):
            return {"folded": 0}
        if summary.mpack_id not in states:
            secure_pack(services, session, repository_id, summary.mpack_id, file, begun_at)
            _add_row(session, repository_id, summary)
            write_index(session, repository_id, summary.mpack_id, file)
        elif states[summary.mpack_id] != INDEXED:
            return {"folded": 0}
        session.execute(delete(Mpack).where(Mpack.repository_id == repository_id, Mpack.mpack_id.in_(old)))
        doom(session, "archive", [archive_key(repository_id, mpack_id) for mpack_id in old])
    return {"folded": len(chosen), "size": summary.size}


def copy_pack(pack: PackReader, writer: PackWriter) -> None:
    """Add all that lies in a pack: large blocks as they are, the entries of small ones one by one. Raises Invalid."""
    for block in pack.blocks:
        entries = list(pack.entries.of_block(block))
        if block.raw_length >= COPY_BYTES:
            writer.copy_block(pack.stored_chunks(block), block, entries)
            continue
        raw = pack.raw_block(block)
        if block.kind is Kind.SNAPSHOT:
            for snapshot in block_snapshots(raw, entries):
                writer.add_snapshot(snapshot)
        elif block.kind is Kind.COMMIT:
            for commit in block_commits(raw, entries):
                writer.add_commit(commit)
        else:
            for entry in entries:
                writer.add_object(entry.entity_id, raw[entry.offset : entry.offset + entry.raw_length])


def _chosen(session: Session, repository_id: UUID) -> list[str]:
    """The packs to fold, in the order in which they came."""
    found = session.execute(
        select(Mpack.mpack_id, Mpack.size, Mpack.created_at)
        .where(Mpack.repository_id == repository_id, Mpack.state == "live", Mpack.indexed_at.is_not(None))
        .order_by(Mpack.size, Mpack.mpack_id)
    ).all()
    count = fold_count([row.size for row in found])
    return [row.mpack_id for row in sorted(found[:count], key=lambda row: (row.created_at, row.mpack_id))]


def _states(session: Session, repository_id: UUID, mpack_ids: Sequence[str]) -> Iterator[tuple[str, tuple[str, bool]]]:
    """(pack, (state, whether it is indexed)) of those that have a row."""
    rows = session.execute(
        select(Mpack.mpack_id, Mpack.state, Mpack.indexed_at).where(
            Mpack.repository_id == repository_id, Mpack.mpack_id.in_(mpack_ids)
        )
    )
    return ((row.mpack_id, (row.state, row.indexed_at is not None)) for row in rows)


def _add_row(session: Session, repository_id: UUID, summary: PackSummary) -> None:
    session.execute(
        insert(Mpack).values(
            repository_id=repository_id,
            mpack_id=summary.mpack_id,
            state="live",
            size=summary.size,
            object_ids=[],
        )
    )
