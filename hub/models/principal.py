"""Who may do something, and by which token."""

from __future__ import annotations

import re
from datetime import datetime
from uuid import UUID

from sqlalchemy import DateTime, FetchedValue, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from hub.models.base import Model

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,37}[a-z0-9])?")


class Principal(Model):
    """A person or a machine. Its name is the first part of its repositories' URLs."""

    __tablename__ = "principal"

    principal_id: Mapped[UUID] = mapped_column(primary_key=True)
    name: Mapped[str]
    is_superuser: Mapped[bool] = mapped_column(default=False)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=FetchedValue())


class Token(Model):
    """An API token. Only the SHA-256 of its text is kept.

    `scope` is the greatest right that it gives, `repository_id` the only repository that it is for.
    """

    __tablename__ = "token"

    token_id: Mapped[UUID] = mapped_column(primary_key=True)
    principal_id: Mapped[UUID] = mapped_column(ForeignKey("hub.principal.principal_id"))
    token_hash: Mapped[bytes]
    label: Mapped[str]
    scope: Mapped[str]
    repository_id: Mapped[UUID | None] = mapped_column(ForeignKey("hub.repository.repository_id"))
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=FetchedValue())
    expires_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    revoked_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    used_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True), server_default=FetchedValue())
