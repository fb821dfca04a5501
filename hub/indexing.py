"""`mpack.index`: from a stored pack to rows that say where each entity lies."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from itertools import islice
from typing import BinaryIO
from uuid import UUID

from sqlalchemy import select, text, update
from sqlalchemy.orm import Session

from hub.archive import download_pack
from hub.errors import CorruptMpack, HubError
from hub.keys import mpack_id_of
from hub.models import Mpack
from hub.models.sets import Ids
from hub.pack.format import Block, Entry
from hub.pack.reader import FileSource, PackReader
from hub.services import Services

ROWS = 20_000
"""Index rows a statement."""


def index_mpack(services: Services, session: Session, repository_id: UUID, mpack_key: str) -> int:
    """Re-read the pack from the archive, check it, write its block and index rows; how many entities it has.

    Idempotent: a pack that is indexed already is left alone, and so is one that `mpack.repack` has folded into another.
    The digest of the whole file is compared with the id under which every object in it was verified at the push, so the
    same digest means the same verified bytes. Raises CorruptMpack, storage's NotFound and Unavailable.
    """
    mpack_id = mpack_id_of(mpack_key)
    mpack = session.scalars(
        select(Mpack)
        .where(Mpack.repository_id == repository_id, Mpack.mpack_id == mpack_id)
        .with_for_update(key_share=True)
    ).one_or_none()
    if mpack is None or mpack.indexed_at is not None:
        return 0
    with tempfile.TemporaryFile() as file:
        download_pack(services, repository_id, mpack_id, file)
        return write_index(session, repository_id, mpack_id, file)


def write_index(session: Session, repository_id: UUID, mpack_id: str, file: BinaryIO) -> int:
    """Write the block and index rows of the pack in `file`, whose row is there; how many entities it has."""
    try:
        pack = PackReader.open(FileSource(file))
    except HubError as error:
        raise CorruptMpack(mpack_id, error.sentence) from error
    _write_blocks(session, repository_id, mpack_id, pack.blocks)
    entries = iter(pack.entries)
    while some := list(islice(entries, ROWS)):
        _write_entries(session, repository_id, mpack_id, some)
    session.execute(
        update(Mpack)
        .where(Mpack.repository_id == repository_id, Mpack.mpack_id == mpack_id)
        .values(indexed_at=text("now()"), object_ids=None)
    )
    return len(pack.entries)


def _write_blocks(session: Session, repository_id: UUID, mpack_id: str, blocks: Sequence[Block]) -> None:
    session.execute(
        BLOCKS,
        {
            "repository_id": repository_id,
            "mpack_id": bytes.fromhex(mpack_id),
            "numbers": [block.number for block in blocks],
            "offsets": [block.offset for block in blocks],
            "stored": [block.stored_length for block in blocks],
            "raw": [block.raw_length for block in blocks],
            "codecs": [int(block.codec) for block in blocks],
            "checksums": [block.checksum for block in blocks],
            "entries": [block.entry_count for block in blocks],
        },
    )


def _write_entries(session: Session, repository_id: UUID, mpack_id: str, entries: Sequence[Entry]) -> None:
    session.execute(
        ENTRIES,
        {
            "repository_id": repository_id,
            "mpack_id": bytes.fromhex(mpack_id),
            "kinds": [int(entry.kind) for entry in entries],
            "ids": Ids(bytes.fromhex(entry.entity_id) for entry in entries),
            "blocks": [entry.block for entry in entries],
            "offsets": [entry.offset for entry in entries],
            "lengths": [entry.raw_length for entry in entries],
        },
    )


BLOCKS = text("""
INSERT INTO hub.mpack_block
    (repository_id, mpack_id, block, stored_offset, stored_length, raw_length, codec, checksum, entries)
SELECT :repository_id, :mpack_id, given.*
FROM unnest(
    CAST(:numbers AS integer[]), CAST(:offsets AS bigint[]), CAST(:stored AS bigint[]), CAST(:raw AS bigint[]),
    CAST(:codecs AS smallint[]), CAST(:checksums AS bigint[]), CAST(:entries AS integer[])
) given
""")

ENTRIES = text("""
INSERT INTO hub.mpack_index (repository_id, kind, entity_id, mpack_id, block, raw_offset, raw_length)
SELECT :repository_id, given.kind, given.entity_id, :mpack_id, given.block, given.raw_offset, given.raw_length
FROM unnest(
    CAST(:kinds AS smallint[]), :ids, CAST(:blocks AS integer[]),
    CAST(:offsets AS bigint[]), CAST(:lengths AS bigint[])
) given (kind, entity_id, block, raw_offset, raw_length)
""")
