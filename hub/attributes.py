"""The domain in a repository's `.museattributes`, for one whose commits have not told it.

Only a commit with a `structured_delta` names its domain, and the first commit of a history has none.
"""

from __future__ import annotations

import tomllib
from uuid import UUID

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from hub.identity import DEFAULT_DOMAIN, DOMAIN
from hub.last_commits import manifest_of
from hub.locate import BlockReader, locate_objects
from hub.models import Repository
from hub.records import EMPTY_OBJECT_ID
from hub.services import Services

FILE = ".museattributes"
FILE_BYTES = 64 * 1024
"""A larger file is not read: the client's own has a few hundred bytes."""


def learn_domain(services: Services, session: Session, repository_id: UUID, tips: list[str]) -> str | None:
    """Set the domain that one of these heads names, where the repository has the default; the domain, if it was set.

    Raises FetchNotIndexed, CorruptMpack and storage's errors.
    """
    mine = Repository.repository_id == repository_id
    if session.scalars(select(Repository.domain).where(mine)).one() != DEFAULT_DOMAIN:
        return None
    for tip in tips:
        domain = _domain_at(services, session, repository_id, tip)
        if domain is not None and domain != DEFAULT_DOMAIN:
            session.execute(update(Repository).where(mine, Repository.domain == DEFAULT_DOMAIN).values(domain=domain))
            return domain
    return None


def domain_in(attributes: bytes) -> str | None:
    """The `domain` of the table `[meta]`; None where there is none that a repository could have."""
    try:
        meta = tomllib.loads(attributes.decode()).get("meta")
    except (ValueError, RecursionError):
        return None  # A file of a person's making, which is nobody's error here.
    domain = meta.get("domain") if isinstance(meta, dict) else None
    return domain if isinstance(domain, str) and DOMAIN.fullmatch(domain) else None


def _domain_at(services: Services, session: Session, repository_id: UUID, tip: str) -> str | None:
    object_id = manifest_of(session, repository_id, tip).get(FILE, EMPTY_OBJECT_ID)
    if object_id == EMPTY_OBJECT_ID:
        return None
    (place,) = locate_objects(session, repository_id, [object_id])
    if place.entry.raw_length > FILE_BYTES:
        return None
    return domain_in(BlockReader(services.archive, repository_id, [place]).content(place))
