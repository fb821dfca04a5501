"""A repository in parts, for a Muse client that takes 64 MiB in one answer: the oldest commits that fit, parents first.

The hub keeps no state: what comes next follows from the commits that the client says it has. A commit that alone is too
large comes in pages: all but the last have some of its objects only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from sqlalchemy.orm import Session

from hub.difference import Difference, boundary_objects, lacking
from hub.errors import Missing, TooLarge
from hub.fetch_body import object_size, snapshot_size
from hub.locate import Place, in_file_order
from hub.manifest import decode_manifest
from hub.models.history import Node, records, snapshots
from hub.records import wire_commit

ENVELOPE_BYTES = 64
"""Keys and counts of a body, at most."""
BITE = 32
"""Commits that are looked at together."""

Locate = Callable[[Sequence[str]], list[Place]]


@dataclass(slots=True)
class Part:
    """Commits and snapshots of one answer, and the places of its objects."""

    commits: list[str] = field(default_factory=list)
    snapshots: list[str] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    record_bytes: int = 0
    """Bytes of the commits and snapshots in the answer."""
    object_bytes: int = 0

    @property
    def size(self) -> int:
        """Bytes of the answer up to the heads, at most."""
        return ENVELOPE_BYTES + self.record_bytes + self.object_bytes

    def add(self, other: Part) -> None:
        """Take in what the other has."""
        self.commits += other.commits
        self.snapshots += other.snapshots
        self.places += other.places
        self.record_bytes += other.record_bytes
        self.object_bytes += other.object_bytes

    @property
    def contents(self) -> Difference:
        """As a difference whose objects are in the order of their places."""
        return Difference(self.commits, self.snapshots, [place.entry.entity_id for place in self.places])


class NeedsPages(TooLarge):
    """The next commit alone is larger than an answer; it has so many pages."""

    def __init__(self, pages: int) -> None:
        super().__init__(f"The next commit has {pages} pages of 64 MiB.")
        self.pages = pages


def oldest_part(
    session: Session, repository_id: UUID, want: Sequence[str], have: Sequence[str], locate: Locate, *, limit: int
) -> Part:
    """As many of the commits that the receiver lacks as fit into `limit` bytes, each with what it adds.

    Raises NeedsPages when not even one fits.
    """
    part = Part()
    for step in _steps(session, repository_id, want, have, locate):
        if part.size + step.size > limit:
            if not part.commits:
                raise NeedsPages(len(_pages(step, limit)))
            break
        part.add(step)
    return part


def page_of_next(
    session: Session,
    repository_id: UUID,
    want: Sequence[str],
    have: Sequence[str],
    locate: Locate,
    *,
    page: int,
    limit: int,
) -> Part:
    """Page `page`, from 1, of the next commit that the receiver lacks; the last one brings the commit itself.

    Empty when it lacks none. Raises Missing for a page that the commit does not have.
    """
    step = next(_steps(session, repository_id, want, have, locate), None)
    if step is None:
        return Part()
    pages = _pages(step, limit)
    if page > len(pages):
        raise Missing(f"The next commit has {len(pages)} pages, not {page}.")
    if page < len(pages):
        return Part(places=pages[page - 1])
    return Part(step.commits, step.snapshots, pages[-1], step.record_bytes)


def _steps(
    session: Session, repository_id: UUID, want: Sequence[str], have: Sequence[str], locate: Locate
) -> Iterator[Part]:
    """Each commit that the receiver lacks, parents first, with the snapshot and the objects that it adds."""
    send, held = lacking(session, repository_id, want, have)
    sent = boundary_objects(session, repository_id, send, held, have)
    known = {node.snapshot_id for node in held.values()}
    for start in range(0, len(send), BITE):
        some = send[start : start + BITE]
        added = _added(session, repository_id, some, known, sent)
        places = iter(locate([object_id for _, _, object_ids in added.values() for object_id in object_ids]))
        found = records(session, repository_id, [node.commit_id for node in some])
        for node, record in zip(some, found, strict=True):
            step = Part([node.commit_id], record_bytes=len(wire_commit(record)))
            if node.snapshot_id in added:
                manifest, created_at, object_ids = added.pop(node.snapshot_id)
                step.snapshots.append(node.snapshot_id)
                step.record_bytes += snapshot_size(manifest, created_at)
                step.places = [next(places) for _ in object_ids]
                step.object_bytes = sum(object_size(place.entry.raw_length) for place in step.places)
            yield step


def _added(
    session: Session, repository_id: UUID, nodes: Sequence[Node], known: set[str], sent: set[str]
) -> dict[str, tuple[bytes, str, list[str]]]:
    """New snapshot → manifest, created_at, its new objects. What is found is `known` and `sent` from then on."""
    fresh = list(dict.fromkeys(node.snapshot_id for node in nodes if node.snapshot_id not in known))
    known.update(fresh)
    added: dict[str, tuple[bytes, str, list[str]]] = {}
    for snapshot_id, manifest, created_at in snapshots(session, repository_id, fresh):
        object_ids = list(dict.fromkeys(item for item in decode_manifest(manifest).values() if item not in sent))
        sent.update(object_ids)
        added[snapshot_id] = (manifest, created_at, object_ids)
    return added


def _pages(step: Part, limit: int) -> list[list[Place]]:
    """The objects of a commit, in lists that fit into an answer, also together with the commit."""
    room = limit - ENVELOPE_BYTES - step.record_bytes
    pages: list[list[Place]] = [[]]
    size = 0
    for place in in_file_order(step.places):
        cost = object_size(place.entry.raw_length)
        if cost > room:
            raise TooLarge(
                f"The next commit has a file of {place.entry.raw_length >> 20} MiB, or too many files, for the Muse "
                "client's 64 MiB an answer. Use `packhouse clone`."
            )
        if size + cost > room:
            pages.append([])
            size = 0
        pages[-1].append(place)
        size += cost
    return pages
