"""Packs, the index into them, and the clone cache."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import BigInteger, DateTime, FetchedValue, ForeignKey, SmallInteger
from sqlalchemy.orm import Mapped, mapped_column

from hub.models.base import Digest, Digests, Model


class Mpack(Model):
    """A stored pack. `object_ids` is what it holds, kept until the index says it."""

    __tablename__ = "mpack"

    repository_id: Mapped[UUID] = mapped_column(ForeignKey("hub.repository.repository_id"), primary_key=True)
    mpack_id: Mapped[str] = mapped_column(Digest, primary_key=True)
    state: Mapped[str]
    size: Mapped[int] = mapped_column(BigInteger)
    object_ids: Mapped[list[str] | None] = mapped_column(Digests, deferred=True)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=FetchedValue())
    indexed_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))


class MpackBlock(Model):
    """One compressed block of an indexed pack. `entries`: how many entities lie in it."""

    __tablename__ = "mpack_block"

    repository_id: Mapped[UUID] = mapped_column(primary_key=True)
    mpack_id: Mapped[str] = mapped_column(Digest, primary_key=True)
    block: Mapped[int] = mapped_column(primary_key=True)
    stored_offset: Mapped[int] = mapped_column(BigInteger)
    stored_length: Mapped[int] = mapped_column(BigInteger)
    raw_length: Mapped[int] = mapped_column(BigInteger)
    codec: Mapped[int] = mapped_column(SmallInteger)
    checksum: Mapped[int] = mapped_column(BigInteger)
    entries: Mapped[int]


class MpackIndex(Model):
    """Where one entity lies: pack, block of the pack, place in the block's raw bytes."""

    __tablename__ = "mpack_index"

    repository_id: Mapped[UUID] = mapped_column(primary_key=True)
    kind: Mapped[int] = mapped_column(SmallInteger, primary_key=True)
    entity_id: Mapped[str] = mapped_column(Digest, primary_key=True)
    mpack_id: Mapped[str] = mapped_column(Digest, primary_key=True)
    block: Mapped[int]
    raw_offset: Mapped[int] = mapped_column(BigInteger)
    raw_length: Mapped[int] = mapped_column(BigInteger)


class FetchMpackCache(Model):
    """The prebuilt pack that covers this tip and all others that were live when it was built.

    `body_id`, `body_size`: the ready-made body of a Muse `fetch` of the same tips. Without an id there is none: it
    would have had so many bytes at least, or was not thought of yet when both are missing.
    """

    __tablename__ = "fetch_mpack_cache"

    repository_id: Mapped[UUID] = mapped_column(ForeignKey("hub.repository.repository_id"), primary_key=True)
    tip_commit_id: Mapped[str] = mapped_column(Digest, primary_key=True)
    mpack_id: Mapped[str] = mapped_column(Digest)
    size: Mapped[int] = mapped_column(BigInteger)
    body_id: Mapped[str | None] = mapped_column(Digest)
    body_size: Mapped[int | None] = mapped_column(BigInteger)
    built_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=FetchedValue())
