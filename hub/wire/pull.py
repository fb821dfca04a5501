"""The answer of `fetch`: planned whole before a byte is sent, then streamed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

import msgpack
from sqlalchemy.orm import Session

from hub.difference import Difference, difference, known_commits
from hub.errors import FetchNotIndexed, NotReady, TooLarge
from hub.fetch import raise_failure
from hub.locate import BlockReader, Place, locate_objects
from hub.models.history import Node, ancestors, branch_heads, records, snapshots
from hub.records import decode_manifest, wire_commit
from hub.services import Services
from hub.work import live_index_jobs

ANSWER_BYTES = 67_108_864
"""What the Muse client reads at most; a larger answer is an error to it."""
INDEX_SECONDS = 20.0
"""How long an answer waits for the index of a push that has just come: the client neither retries nor waits."""
INDEX_POLL_SECONDS = 0.1
READY_COMMITS = 1_000
"""A difference of so many commits is small enough to end the negotiation."""


@dataclass(frozen=True, slots=True)
class Plan:
    """An answer whose parts are known and whose objects are located; nothing can be missing any more."""

    commits: list[bytes]
    snapshots: list[bytes]
    places: list[Place]
    heads: bytes
    reader: BlockReader

    def chunks(self) -> Iterator[bytes]:
        """The msgpack body, piece by piece, parents first."""
        packer = msgpack.Packer()
        yield packer.pack_map_header(4) + packer.pack("commits") + packer.pack_array_header(len(self.commits))
        yield from self.commits
        yield packer.pack("snapshots") + packer.pack_array_header(len(self.snapshots))
        yield from self.snapshots
        yield packer.pack("objects") + packer.pack_array_header(len(self.places))
        for place in self.places:
            yield packer.pack({"object_id": place.entry.entity_id, "content": self.reader.content(place)})
        yield packer.pack("branch_heads") + self.heads


def plan_fetch(services: Services, repository_id: UUID, want: Sequence[str], have: Sequence[str]) -> Plan:
    """Plan the answer: everything that `want` reaches and `have` doesn't.

    Waits a while for the index of a push that has just come. Raises Missing for an unknown want, NotReady when the
    index takes longer, WorkFailed when it has failed, TooLarge when the client could not read the answer.
    """
    with services.sessions() as session:
        wanted = known_commits(session, repository_id, want)
        contents = difference(session, repository_id, wanted, have)
        places = _locate(session, repository_id, contents)
        size = sum(_object_size(place.entry.raw_length) for place in places)
        heads = msgpack.packb(branch_heads(session, repository_id))
        parts: tuple[list[bytes], list[bytes]] = ([], [])
        for which, item in _records(session, repository_id, contents):
            size += len(item)
            if size > ANSWER_BYTES:
                break
            parts[which].append(item)
    if size + len(heads) + 64 > ANSWER_BYTES:
        raise TooLarge(
            "This is more than the Muse client takes in one answer (64 MiB). Get the repository with "
            "`packhouse clone`, or pull fewer branches at a time."
        )
    return Plan(*parts, places, heads, BlockReader(services.archive, repository_id, places))


def is_ready(session: Session, repository_id: UUID, want: Sequence[str], ack: Sequence[str]) -> bool:
    """Whether a fetch with `have` = `ack` is small: nothing to send, or no root commit and not many commits."""
    wanted = ancestors(session, repository_id, known_commits(session, repository_id, want))
    held = ancestors(session, repository_id, ack) if ack else {}
    send: list[Node] = [node for commit_id, node in wanted.items() if commit_id not in held]
    return all(node.parents for node in send) and len(send) <= READY_COMMITS


def _locate(session: Session, repository_id: UUID, contents: Difference) -> list[Place]:
    deadline = time.monotonic() + INDEX_SECONDS
    while True:
        # Asked before looking: a job that ends in between has written its rows by then.
        under_way = live_index_jobs(session, repository_id)
        try:
            return locate_objects(session, repository_id, contents.objects)
        except FetchNotIndexed:
            session.rollback()
            if not under_way:
                raise_failure(session, repository_id, gap=True)
            if not under_way or time.monotonic() > deadline:
                sentence = "The last push is still being indexed; try again in a few seconds."
                raise NotReady(sentence, retry_after=5, why=[]) from None
            time.sleep(INDEX_POLL_SECONDS)


def _records(session: Session, repository_id: UUID, contents: Difference) -> Iterator[tuple[int, bytes]]:
    """(0, commit) and (1, snapshot) as they go over the wire."""
    for record in records(session, repository_id, contents.commits):
        yield 0, msgpack.packb(wire_commit(record))
    for snapshot_id, manifest, created_at in snapshots(session, repository_id, contents.snapshots):
        snapshot = {
            "snapshot_id": snapshot_id,
            "manifest": decode_manifest(manifest),
            "created_at": created_at,
        }
        yield 1, msgpack.packb(snapshot)


def _object_size(length: int) -> int:
    """Bytes of one object in the answer: the map, its two keys, the id, and the head of the content."""
    head = 2 if length < 1 << 8 else 3 if length < 1 << 16 else 5
    return 1 + 10 + 66 + 8 + head + length
