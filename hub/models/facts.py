"""What has been worked out about the heads of branches; always for live heads only, and never the truth."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, delete, select, text
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA, JSONB
from sqlalchemy.orm import Mapped, Session, mapped_column

from hub.models.base import Digest, Model
from hub.models.sets import bites


class LastCommits(Model):
    """For each path of a commit's tree the last commit that changed it; `encoded` by `hub.last_commits`."""

    __tablename__ = "last_commits"

    repository_id: Mapped[UUID] = mapped_column(primary_key=True)
    commit_id: Mapped[str] = mapped_column(Digest, primary_key=True)
    encoded: Mapped[bytes]


class CodeIntel(Model):
    """Languages and sizes of a commit's tree, as `hub.code_intel.measure` gives them."""

    __tablename__ = "code_intel"

    repository_id: Mapped[UUID] = mapped_column(primary_key=True)
    commit_id: Mapped[str] = mapped_column(Digest, primary_key=True)
    statistics: Mapped[dict[str, Any]] = mapped_column(JSONB)


def keep_only(session: Session, model: type[LastCommits | CodeIntel], repository_id: UUID, tips: Sequence[str]) -> None:
    """Forget what is known of commits that are no heads any more."""
    session.execute(delete(model).where(model.repository_id == repository_id, model.commit_id.not_in(tips)))


def known_tips(session: Session, model: type[LastCommits | CodeIntel], repository_id: UUID) -> set[str]:
    """The commits that something is known of."""
    return set(session.scalars(select(model.commit_id).where(model.repository_id == repository_id)))


def object_sizes(session: Session, repository_id: UUID, object_ids: Iterable[str]) -> dict[str, int]:
    """The size in bytes of each of the objects that the index has."""
    found: dict[str, int] = {}
    for bite in bites(object_ids):
        rows = session.execute(SIZES, {"repository_id": repository_id, "ids": bite})
        found.update((bytes(entity_id).hex(), size) for entity_id, size in rows)
    return found


SIZES = text("""
SELECT entity_id, min(raw_length) FROM hub.mpack_index
WHERE repository_id = :repository_id AND kind = 1 AND entity_id = ANY(:ids)
GROUP BY entity_id
""").bindparams(bindparam("ids", type_=ARRAY(BYTEA)))
