"""What to send: the commits, snapshots and objects that a receiver lacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy.orm import Session

from hub.errors import Missing
from hub.models.history import Node, ancestors, generations, snapshots
from hub.records import EMPTY_OBJECT_ID, decode_manifest


@dataclass(frozen=True, slots=True)
class Difference:
    """Ids in the order in which they are sent: parents before children, objects of one path together."""

    commits: list[str]
    snapshots: list[str]
    objects: list[str]


def known_commits(session: Session, repository_id: UUID, want: Sequence[str]) -> list[str]:
    """The wanted commits, each once. Raises Missing for one that was never pushed here."""
    wanted = list(dict.fromkeys(want))
    known = generations(session, repository_id, wanted)
    unknown = [commit_id for commit_id in wanted if commit_id not in known]
    if unknown:
        raise Missing(f"There is no commit {unknown[0]} in this repository.")
    return wanted


def difference(session: Session, repository_id: UUID, want: Sequence[str], have: Sequence[str]) -> Difference:
    """All that `want` reaches and `have` doesn't.

    Ids in `have` that the repository does not know are normal: a client has commits of its own. Objects of the
    boundary are subtracted: those of the receiver's commits, and of the parents at which sending begins. The empty
    object is always held and never sent.
    """
    send, held = lacking(session, repository_id, want, have)
    held_snapshots = {node.snapshot_id for node in held.values()}
    new_snapshots = list(dict.fromkeys(node.snapshot_id for node in send if node.snapshot_id not in held_snapshots))
    held_objects = boundary_objects(session, repository_id, send, held, have)
    first_path: dict[str, str] = {}
    for _, manifest, _ in snapshots(session, repository_id, new_snapshots):
        for path, object_id in decode_manifest(manifest).items():
            if object_id not in held_objects and object_id not in first_path:
                first_path[object_id] = path
    # Sorting is stable: within one path the order of history remains, so neighbours compress well.
    objects = sorted(first_path, key=first_path.__getitem__)
    return Difference([node.commit_id for node in send], new_snapshots, objects)


def lacking(
    session: Session, repository_id: UUID, want: Sequence[str], have: Sequence[str]
) -> tuple[list[Node], dict[str, Node]]:
    """The commits that the receiver lacks, parents before children, and those that it has."""
    wanted = ancestors(session, repository_id, want)
    held = ancestors(session, repository_id, have) if have else {}
    return [node for commit_id, node in wanted.items() if commit_id not in held], held


def boundary_objects(
    session: Session, repository_id: UUID, send: Sequence[Node], held: dict[str, Node], have: Sequence[str]
) -> set[str]:
    """Objects that the receiver surely has: of its own commits, and of those next to where sending begins."""
    edge = {parent for node in send for parent in node.parents} | set(have)
    near = {held[commit_id].snapshot_id for commit_id in edge if commit_id in held}
    found: set[str] = {EMPTY_OBJECT_ID}
    for _, manifest, _ in snapshots(session, repository_id, sorted(near)):
        found.update(decode_manifest(manifest).values())
    return found
