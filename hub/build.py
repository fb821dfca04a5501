"""Build a pack for a fetch out of stored packs: whole blocks are copied, the rest is packed anew."""

from __future__ import annotations

from collections import defaultdict
from typing import BinaryIO
from uuid import UUID

from sqlalchemy.orm import Session

from hub.difference import Difference
from hub.locate import BlockReader, Place, locate_objects, naming
from hub.models.history import records, snapshots
from hub.pack.format import PackSummary
from hub.pack.writer import PackWriter
from hub.records import Snapshot, decode_manifest, parse_commit
from storage import Store

COPY_BYTES = 512 * 1024
"""Blocks with at least so many raw bytes are copied; smaller ones compress better together."""


def build_pack(
    session: Session, archive: Store, repository_id: UUID, contents: Difference, out: BinaryIO
) -> PackSummary:
    """Write one pack of the difference to `out`.

    A block is copied as it lies when every object in it is wanted, so that nothing is sent which was not asked for.
    Raises FetchNotIndexed when the index lacks an object, CorruptMpack for a damaged block, and storage's errors.
    """
    places = locate_objects(session, repository_id, contents.objects)
    reader = BlockReader(archive, repository_id, places)
    wanted: dict[tuple[str, int], list[Place]] = defaultdict(list)
    for place in places:
        wanted[place.mpack_id, place.block.number].append(place)
    writer = PackWriter(out)
    for place in places:
        block = wanted[place.mpack_id, place.block.number]
        if len(block) < place.block.entry_count or place.block.raw_length < COPY_BYTES:
            writer.add_object(place.entry.entity_id, reader.content(place))
        elif place is block[0]:
            entries = sorted((item.entry for item in block), key=lambda entry: entry.offset)
            with naming(place.mpack_id):
                writer.copy_block(reader.stream(place), place.block, entries)
    for snapshot_id, manifest, created_at in snapshots(session, repository_id, contents.snapshots):
        writer.add_snapshot(Snapshot(snapshot_id, decode_manifest(manifest), created_at))
    for record in records(session, repository_id, contents.commits):
        writer.add_commit(parse_commit(record))
    return writer.finish()
