"""Check one pack: its file, every hash in it, and that the index says the same as the pack's own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sqlalchemy import select
from sqlalchemy.orm import Session

from hub.archive import SET_ASIDE, download_pack
from hub.errors import CorruptMpack, HubError
from hub.fsck.findings import Code, Finding
from hub.keys import archive_key, mpack_key
from hub.models import Mpack
from hub.models.gaps import block_rows, index_rows
from hub.pack.format import Limits
from hub.pack.reader import PackReader
from hub.pack.verify import verify_pack
from hub.work import INDEX
from storage import NotFound
from tasks.queue import list_jobs

if TYPE_CHECKING:
    from hub.fsck.check import Checked

NO_LIMITS = Limits(
    max_file=1 << 62,
    max_entries=1 << 31,
    max_raw_total=1 << 62,
    max_object=1 << 62,
    max_record=1 << 62,
    max_rows=1 << 62,
)
"""What a push once accepted is sound, whatever is accepted today."""

BLOCKS = 64
"""Blocks whose entries are compared at a time."""


def check_pack(checked: Checked, mpack_id: str) -> Iterator[Finding]:
    """What is wrong with a pack. One whose row changes meanwhile is in somebody's hands, and passed over."""
    before = _row(checked, mpack_id)
    if before is None:
        return
    state, size, indexed = before
    findings = list(_file(checked, mpack_id, size, indexed=indexed))
    checked.advance(size)
    if state == SET_ASIDE:
        findings = [checked.found(Code.PACK_SET_ASIDE, mpack_id, "it is quarantined")]
    elif state == "live" and not indexed and not _index_job(checked, mpack_id):
        findings.append(checked.found(Code.NOT_INDEXED, mpack_id, "it is not indexed, and no job is under way"))
    if _row(checked, mpack_id) == before:
        yield from findings


def _file(checked: Checked, mpack_id: str, size: int, *, indexed: bool) -> Iterator[Finding]:
    try:
        stored = checked.services.archive.head(archive_key(checked.repository_id, mpack_id)).size
        if stored != size:
            yield checked.found(Code.PACK_DAMAGED, mpack_id, f"the file has {stored} bytes, pushed were {size}")
            return
        if not checked.with_bytes:
            return
        with tempfile.TemporaryFile() as file:
            download_pack(checked.services, checked.repository_id, mpack_id, file)
            pack = verify_pack(file, limits=NO_LIMITS, expect_id=mpack_id)
            if indexed:
                with checked.services.sessions() as session:
                    if reason := _differs(session, checked, mpack_id, pack):
                        yield checked.found(Code.INDEX_WRONG, mpack_id, reason)
    except NotFound:
        yield checked.found(Code.PACK_MISSING, mpack_id, "there is no such file in the archive")
    except CorruptMpack:
        yield checked.found(Code.PACK_DAMAGED, mpack_id, "the file's SHA-256 is not the pack's id")
    except HubError as error:
        yield checked.found(Code.PACK_DAMAGED, mpack_id, error.sentence)


def _differs(session: Session, checked: Checked, mpack_id: str, pack: PackReader) -> str | None:
    """Where the index in the database differs from that of the pack; None: nowhere."""
    blocks = [
        (
            item.number,
            item.offset,
            item.stored_length,
            item.raw_length,
            int(item.codec),
            item.checksum,
            item.entry_count,
        )
        for item in pack.blocks
    ]
    if block_rows(session, checked.repository_id, mpack_id) != blocks:
        return "its blocks are recorded otherwise"
    for start in range(0, len(pack.blocks), BLOCKS):
        some = pack.blocks[start : start + BLOCKS]
        own = [
            (int(item.kind), item.entity_id, item.block, item.offset, item.raw_length)
            for block in some
            for item in pack.entries.of_block(block)
        ]
        if index_rows(session, checked.repository_id, mpack_id, (some[0].number, some[-1].number)) != own:
            return f"the entries of its blocks {some[0].number} to {some[-1].number} are recorded otherwise"
    return None


def _row(checked: Checked, mpack_id: str) -> tuple[str, int, bool] | None:
    with checked.services.sessions() as session:
        row = session.execute(
            select(Mpack.state, Mpack.size, Mpack.indexed_at).where(
                Mpack.repository_id == checked.repository_id, Mpack.mpack_id == mpack_id
            )
        ).one_or_none()
    return None if row is None else (row.state, row.size, row.indexed_at is not None)


def _index_job(checked: Checked, mpack_id: str) -> bool:
    with checked.services.sessions() as session:
        return any(
            job.payload["kwargs"]["mpack_key"] == mpack_key(mpack_id)
            for status in ("pending", "running")
            for job in list_jobs(session, task=INDEX, scope=str(checked.repository_id), status=status, limit=1000)
        )
