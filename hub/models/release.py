"""Releases and tags: names that clients give to commits."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import DateTime, FetchedValue, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from hub.models.base import Digest, Model


class Release(Model):
    """A release. `record` is the client's own map as it was sent, in msgpack."""

    __tablename__ = "release"

    repository_id: Mapped[UUID] = mapped_column(ForeignKey("hub.repository.repository_id"), primary_key=True)
    tag: Mapped[str] = mapped_column(primary_key=True)
    release_id: Mapped[str]
    channel: Mapped[str]
    is_draft: Mapped[bool]
    commit_id: Mapped[str] = mapped_column(Digest)
    record: Mapped[bytes]
    released_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=FetchedValue())


class Tag(Model):
    """A label of a commit. Immutable; one label may sit on many commits."""

    __tablename__ = "tag"

    repository_id: Mapped[UUID] = mapped_column(ForeignKey("hub.repository.repository_id"), primary_key=True)
    tag_id: Mapped[str] = mapped_column(primary_key=True)
    commit_id: Mapped[str] = mapped_column(Digest)
    tag: Mapped[str]
    created_at: Mapped[str]
