"""The answer of `fetch`: known whole before a byte is sent, then streamed. A ready-made one is read from the cache."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy.orm import Session

from hub.archive import watched
from hub.difference import Difference, difference, known_commits, lacking
from hub.errors import FetchNotIndexed, NotReady, TooLarge
from hub.fetch import raise_failure
from hub.fetch_body import ANSWER_BYTES, body_chunks, body_size, body_tail
from hub.keys import body_key
from hub.locate import BlockReader, Place, in_file_order, locate_objects
from hub.models.history import branch_heads, generations
from hub.parts import NeedsPages, oldest_part, page_of_next
from hub.prebuild import Prebuilt, prebuilt
from hub.services import Services
from hub.work import Work, live_index_jobs
from storage import Body, NotFound

INDEX_SECONDS = 20.0
"""How long an answer waits for the index of a push that has just come: the client neither retries nor waits."""
INDEX_POLL_SECONDS = 0.1
READY_COMMITS = 1_000
"""A difference of so many commits is small enough to end the negotiation."""
URL_MAX = 90
"""Characters of a remote's URL, and of a branch, that fit into a refusal of 400."""
BRANCH_MAX = 30


@dataclass(frozen=True, slots=True)
class Stored:
    """A ready-made answer: a body that lies in the cache, up to the heads, and the heads."""

    body: Body
    """To be closed by whoever is given it."""
    tail: bytes


@dataclass(frozen=True, slots=True)
class Planned:
    """An answer whose parts are known and whose objects are located: nothing can be missing any more."""

    services: Services
    repository_id: UUID
    contents: Difference
    places: list[Place]
    tail: bytes
    size: int | None
    """Bytes of the answer; None when only a bound was worked out."""

    def chunks(self) -> Iterator[bytes]:
        """The answer, piece by piece, assembled from byte ranges of the stored packs."""
        reader = BlockReader(self.services.archive, self.repository_id, self.places, keep=0)
        objects = ((place.entry, reader.chunks(place)) for place in self.places)
        body = body_chunks(self.services.sessions, self.repository_id, self.contents, len(self.places), objects)
        yield from watched(self.services, self.repository_id, body)
        yield self.tail


def plan_fetch(
    services: Services, work: Work, repository_id: UUID, want: Sequence[str], have: Sequence[str], *, remote: str
) -> Stored | Planned:
    """Plan the answer: everything that `want` reaches and `have` doesn't. `remote`: the repository's URL.

    Waits a while for the index of a push that has just come. Raises Missing for an unknown want, NotReady when the
    index takes longer, WorkFailed when it has failed, TooLarge when the client could not read the answer.
    """
    with services.sessions() as session:
        wanted = known_commits(session, repository_id, want)
        heads = branch_heads(session, repository_id)
        tail = body_tail(heads)
        known = generations(session, repository_id, have)
        found = None if known else prebuilt(session, repository_id, wanted)
        if found is not None:
            _refuse_large(found.body_size or 0, tail, remote, wanted, heads)
            stored = _stored(services, repository_id, found, tail)
            if stored is not None:
                return stored
            if found.body_id is not None:
                session.rollback()  # gives the connection back: a request that held two would lock up a used-up pool
                _make_again(services, work, repository_id, wanted)
        contents = difference(session, repository_id, wanted, list(known))
        places = in_file_order(locate_when_indexed(session, repository_id, contents.objects))
        size = body_size(
            session, repository_id, contents, (place.entry.raw_length for place in places), limit=ANSWER_BYTES
        )
    _refuse_large(size, tail, remote, wanted, heads)
    return Planned(services, repository_id, contents, places, tail, size + len(tail))


def plan_part(
    services: Services, repository_id: UUID, want: Sequence[str], have: Sequence[str], page: int, *, remote: str
) -> Planned:
    """Plan an answer with the oldest commits that fit; with a `page` above 0, that page of the next commit.

    Raises what `plan_fetch` does; TooLarge says how to get a commit that does not fit by itself.
    """
    with services.sessions() as session:
        wanted = known_commits(session, repository_id, want)
        known = list(generations(session, repository_id, have))
        heads = branch_heads(session, repository_id)
        tail = body_tail(heads)
        limit = ANSWER_BYTES - len(tail)

        def locate(object_ids: Sequence[str]) -> list[Place]:
            return locate_when_indexed(session, repository_id, object_ids)

        try:
            if page:
                part = page_of_next(session, repository_id, wanted, known, locate, page=page, limit=limit)
            else:
                part = oldest_part(session, repository_id, wanted, known, locate, limit=limit)
        except NeedsPages as error:
            url, branch = _shown(remote, wanted, heads)
            raise TooLarge(
                f"{error.sentence} For N = 1 to {error.pages}: `muse remote set-url origin {url}/-/page/N; "
                f"muse pull --no-merge origin {branch}`. Then set the URL back to …/-/parts and go on."
            ) from None
    return Planned(services, repository_id, part.contents, in_file_order(part.places), tail, None)


def is_ready(session: Session, repository_id: UUID, want: Sequence[str], ack: Sequence[str], *, most: int) -> bool:
    """Whether a fetch with `have` = `ack` is small: nothing to send, or no root commit and at most `most` commits."""
    send, _ = lacking(session, repository_id, known_commits(session, repository_id, want), ack)
    return all(node.parents for node in send) and len(send) <= most


def locate_when_indexed(session: Session, repository_id: UUID, object_ids: Sequence[str]) -> list[Place]:
    """A place for each object; waits for index jobs that are under way. Raises NotReady and WorkFailed."""
    deadline = time.monotonic() + INDEX_SECONDS
    while True:
        # Asked before looking: a job that ends in between has written its rows by then.
        under_way = live_index_jobs(session, repository_id)
        try:
            return locate_objects(session, repository_id, object_ids)
        except FetchNotIndexed:
            session.rollback()
            if not under_way:
                raise_failure(session, repository_id, gap=True)
            if not under_way or time.monotonic() > deadline:
                sentence = "The last push is still being indexed; try again in a few seconds."
                raise NotReady(sentence, retry_after=5, why=[]) from None
            time.sleep(INDEX_POLL_SECONDS)


def _stored(services: Services, repository_id: UUID, found: Prebuilt, tail: bytes) -> Stored | None:
    """The ready-made body, opened; None when the cache has lost it or never had it."""
    if found.body_id is None:
        return None
    try:
        return Stored(services.cache.get(body_key(repository_id, found.body_id)), tail)
    except NotFound:
        return None


def _make_again(services: Services, work: Work, repository_id: UUID, tips: Sequence[str]) -> None:
    """Queue a prebuild: the cache has lost a body that its rows name."""
    with services.sessions.begin() as session:
        work.enqueue_prebuild(session, repository_id, tips)


def _refuse_large(size: int, tail: bytes, remote: str, want: Iterable[str], heads: Mapping[str, str]) -> None:
    """Raise TooLarge, with a way to the repository, when the client would not read so much."""
    if size + len(tail) <= ANSWER_BYTES:
        return
    url, branch = _shown(remote, want, heads)
    raise TooLarge(
        f"This is {(size >> 20) or 1} MiB, and the Muse client takes 64. Use `packhouse clone`, or get it in parts: "
        f"`muse init; muse remote add origin {url}/-/parts`, then `muse pull --no-merge origin {branch}` until it says "
        f"«Fetched 0 commit(s)», then `muse pull origin {branch}`."
    )


def _shown(remote: str, want: Iterable[str], heads: Mapping[str, str]) -> tuple[str, str]:
    """The remote's URL and the branch as a refusal can show them."""
    branch = next((name for name, head in heads.items() if head in want), "BRANCH")
    return remote if len(remote) <= URL_MAX else "URL", branch if len(branch) <= BRANCH_MAX else "BRANCH"
