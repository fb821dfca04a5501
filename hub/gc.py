"""`gc`: deletes stored bytes that nothing names any more, and never those of a push in flight.

Bytes that no row names are first marked (hub.doomed), in a transaction of its own, and deleted by a later run, once the
mark is old: whoever read a row that named them has ended by then. A deletion from the archive holds the repository's
lock, as the transaction that writes a pack's row does, and looks at the rows again; that transaction in turn looks for
the mark. So of a push and a gc that meet, one sees the other; docs/adr/0013 has the argument.
Every step is committed by itself: a run that was killed is simply followed by the next.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from itertools import islice
from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session

from hub.archive import DOOM_KEPT
from hub.keys import archive_key
from hub.models import garbage
from hub.models.doomed import Role, doom, instant
from hub.pack_upload import abort_old_uploads
from hub.services import Services
from storage import NotFound, Stat, Store

PAGE_KEYS = 500
"""Listed keys that are compared with the rows at a time."""
LOCKED_KEYS = 50
"""Deletions under one hold of a repository's lock, which pushes wait for."""
CHANGES_MAX = 10_000
"""Deletions, and marks, of one run; the next one goes on."""
NAMED = re.compile(r"[a-z]+/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/([0-9a-f]{64})")
UPLOADS = ("staging", "uploads")
FOLDERS: dict[Role, tuple[str, ...]] = {"archive": ("mpacks",), "cache": ("mpacks", "bodies")}
"""Where each store keeps what rows name."""


@dataclass(frozen=True, slots=True)
class Ages:
    """How old something must be before it goes."""

    unnamed: timedelta = timedelta(days=1)
    """Bytes that no row names, by the store's clock: young ones belong to a push that has not committed yet."""
    marked: timedelta = timedelta(days=1)
    """A mark: longer than a fetch that has read the index, and than a presigned URL is good for."""
    uploads: timedelta = timedelta(days=1)
    """Uploads that nobody has pushed, and staged packs that no push has adopted."""


AGES = Ages()


@dataclass(slots=True)
class Collected:
    """What a run has done. `more`: it ended at its bound. `unknown`: keys that are none of the hub's, left alone."""

    expired: int = 0
    uploads: int = 0
    marked: int = 0
    deleted: int = 0
    deleted_bytes: int = 0
    unknown: int = 0
    more: bool = False

    def counts(self) -> dict[str, Any]:
        """The counts by name."""
        return asdict(self)


def collect(
    services: Services, repository_id: UUID | None = None, *, ages: Ages = AGES, dry_run: bool = False
) -> Collected:
    """Collect the garbage of one repository, or of the whole store; with `dry_run` only count it.

    Raises storage's errors; what was done until then stays done.
    """
    run = _Run(services, repository_id, ages, dry_run=dry_run)
    run.expire()
    run.clear_uploads()
    roles: list[tuple[Role, Store, Named]] = [
        ("archive", services.archive, garbage.named_mpacks),
        ("cache", services.cache, garbage.named_caches),
    ]
    for role in roles:
        run.mark(*role)
        run.delete(*role)
    run.forget()
    return run.done


Packs = Sequence[tuple[UUID, str]]
Named = Callable[[Session, Packs], set[tuple[UUID, str]]]
"""Which of the packs some row names; may name others, too."""


class _Run:
    """One run, and what it has done."""

    def __init__(self, services: Services, repository_id: UUID | None, ages: Ages, *, dry_run: bool) -> None:
        self._services = services
        self._repository_id = repository_id
        self._ages = ages
        self._dry_run = dry_run
        self.done = Collected()
        with services.sessions() as session:
            self._now = instant(session)

    def expire(self) -> None:
        """Staged packs that no push has adopted lose their row; their bytes are marked."""
        before = self._now - self._ages.uploads
        with self._transaction() as session:
            repositories = garbage.staged_before(session, self._repository_id, before, CHANGES_MAX)
            garbage.drop_presigned(session, self._repository_id, before)
        for repository_id in repositories:
            with self._transaction() as session:
                garbage.lock_if_there(session, repository_id)
                expired = garbage.drop_staged(session, repository_id, before)
                self.done.marked += doom(session, "archive", [archive_key(repository_id, item) for item in expired])
            self.done.expired += len(expired)

    def clear_uploads(self) -> None:
        """Delete uploads that nobody has pushed. No row ever names them, so nothing has to be marked."""
        if self._repository_id is None and not self._dry_run:
            self.done.uploads += abort_old_uploads(self._services.archive, self._now - self._ages.uploads)
        for folder in UPLOADS:
            for stat in self._listed(self._services.archive, folder):
                if stat.modified_at < self._now - self._ages.uploads:
                    if self._is_full(self.done.uploads):
                        return
                    self._delete_key(self._services.archive, stat.key)
                    self.done.uploads += 1

    def mark(self, role: Role, store: Store, named: Named) -> None:
        """Mark what no row names and what is old enough not to belong to a push or a fetch of this moment."""
        for page in _pages(stat for folder in FOLDERS[role] for stat in self._listed(store, folder)):
            packs = {}
            for stat in page:
                if (pack := _pack_of(stat.key)) is None:
                    self.done.unknown += 1
                elif stat.modified_at <= self._now - self._ages.unnamed:
                    packs[pack] = stat.key
            with self._transaction() as session:
                unnamed = sorted(packs.keys() - named(session, list(packs)))
                self.done.marked += doom(session, role, [packs[pack] for pack in unnamed])
            if self._is_full(self.done.marked):
                return

    def delete(self, role: Role, store: Store, named: Named) -> None:
        """Delete what was marked long enough ago and still has no name."""
        before = self._now - self._ages.marked
        after = ""
        while True:
            with self._services.sessions() as session:
                keys = garbage.ripe_keys(
                    session, role, before, repository_id=self._repository_id, after=after, limit=PAGE_KEYS
                )
            if not keys:
                return
            after = keys[-1]
            of_repository: dict[UUID, list[str]] = defaultdict(list)
            for key in keys:
                if (pack := _pack_of(key)) is not None:
                    of_repository[pack[0]].append(key)
            for repository_id, some in of_repository.items():
                for start in range(0, len(some), LOCKED_KEYS):
                    if self._is_full(self.done.deleted):
                        return
                    self._delete_some(role, store, named, repository_id, some[start : start + LOCKED_KEYS])

    def forget(self) -> None:
        """Forget deletions that no push can have missed."""
        with self._transaction() as session:
            garbage.forget_doomed(session, self._now - DOOM_KEPT)

    def _delete_some(self, role: Role, store: Store, named: Named, repository_id: UUID, keys: list[str]) -> None:
        with self._transaction() as session:
            if role == "archive":
                garbage.lock_if_there(session, repository_id)
            marked = {
                pack: key
                for key in garbage.lock_ripe(session, role, self._now - self._ages.marked, keys)
                if (pack := _pack_of(key)) is not None
            }
            kept = marked.keys() & named(session, list(marked))
            gone = [key for pack, key in marked.items() if pack not in kept]
            sizes = [self._delete_key(store, key) for key in gone]
            garbage.settle_doomed(session, role, gone, [marked[pack] for pack in kept])
        self.done.deleted += sum(size > 0 for size in sizes)
        self.done.deleted_bytes += sum(sizes)

    def _delete_key(self, store: Store, key: str) -> int:
        """Delete the bytes; how many they were, 0 when there are none."""
        try:
            size = store.head(key).size
        except NotFound:
            return 0
        if not self._dry_run:
            store.delete(key)
        return size

    def _listed(self, store: Store, folder: str) -> Iterator[Stat]:
        return store.list(f"{folder}/" if self._repository_id is None else f"{folder}/{self._repository_id}/")

    def _is_full(self, changes: int) -> bool:
        self.done.more = self.done.more or changes >= CHANGES_MAX
        return changes >= CHANGES_MAX

    @contextmanager
    def _transaction(self) -> Iterator[Session]:
        with self._services.sessions() as session:
            yield session
            if self._dry_run:
                session.rollback()
            else:
                session.commit()


def _pack_of(key: str) -> tuple[UUID, str] | None:
    """(repository, pack) of a stored pack's key; None for a key of another form."""
    match = NAMED.fullmatch(key)
    return None if match is None else (UUID(match[1]), match[2])


def _pages(stats: Iterable[Stat]) -> Iterator[list[Stat]]:
    iterator = iter(stats)
    while page := list(islice(iterator, PAGE_KEYS)):
        yield page
