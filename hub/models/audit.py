"""The audit log."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, DateTime, FetchedValue, Identity
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from hub.models.base import Model


class Audit(Model):
    """Something that was done. Rows are never changed or deleted: the table refuses it."""

    __tablename__ = "audit"

    audit_id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    happened_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=FetchedValue())
    action: Mapped[str]
    principal_id: Mapped[UUID | None]
    name: Mapped[str]
    token_id: Mapped[UUID | None]
    token_label: Mapped[str | None]
    repository_id: Mapped[UUID | None]
    address: Mapped[str | None]
    via: Mapped[str]
    details: Mapped[dict[str, Any]] = mapped_column(JSONB)
