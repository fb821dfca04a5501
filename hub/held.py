"""Which objects a repository holds.

An object is held when a pack of the repository has it, indexed or not yet. A staged pack counts as well: its
objects were uploaded and verified, so an interrupted push goes on where it stopped. The empty object is always held.
Everything is asked per repository: what another one holds is nobody's business here.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.orm import Session

from hub.models.sets import bites
from hub.records import EMPTY_OBJECT_ID


def held_objects(session: Session, repository_id: UUID, object_ids: Iterable[str]) -> set[str]:
    """Those of the objects that the repository holds."""
    wanted = set(object_ids)
    found = wanted & {EMPTY_OBJECT_ID}
    for bite in bites(sorted(wanted)):
        rows = session.execute(HELD, {"repository_id": repository_id, "ids": bite})
        found.update(bytes(object_id).hex() for (object_id,) in rows)
    return found


def adopt_staged(session: Session, repository_id: UUID, object_ids: Iterable[str]) -> list[str]:
    """Make live those staged packs that hold one of the objects which no live pack holds; their ids, sorted.

    The caller holds the repository's lock and commits this together with the commits that need the objects.
    """
    adopted: set[str] = set()
    for bite in bites(sorted(set(object_ids))):
        rows = session.execute(ADOPT, {"repository_id": repository_id, "ids": bite})
        adopted.update(bytes(mpack_id).hex() for (mpack_id,) in rows)
    return sorted(adopted)


HELD = text("""
SELECT entity_id FROM hub.mpack_index
WHERE repository_id = :repository_id AND kind = 1 AND entity_id = ANY(:ids)
UNION
SELECT held.object_id
FROM hub.mpack, unnest(object_ids) held (object_id)
WHERE repository_id = :repository_id AND indexed_at IS NULL AND state <> 'quarantined'
    AND held.object_id = ANY(:ids)
""")

ADOPT = text("""
WITH wanted AS (
    SELECT given.object_id FROM unnest(:ids) given (object_id)
    WHERE NOT EXISTS (
        SELECT FROM hub.mpack_index
        WHERE repository_id = :repository_id AND kind = 1 AND entity_id = given.object_id
    )
    EXCEPT
    SELECT unnest(object_ids) FROM hub.mpack
    WHERE repository_id = :repository_id AND indexed_at IS NULL AND state = 'live'
)
UPDATE hub.mpack SET state = 'live'
WHERE repository_id = :repository_id AND state = 'staged'
    AND object_ids && ARRAY(SELECT object_id FROM wanted)
RETURNING mpack_id
""")
