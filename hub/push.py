"""The straight line of a push: a verified pack becomes bytes in the archive, then rows and jobs in one transaction.

Both transports end here. Everything is checked twice by the same function: before the bytes are stored, so that a
refused push leaves nothing behind, and again under the repository's lock, since another push may have come between.
A push that loses between the two leaves stored bytes that no row names: garbage, never a wrong repository. While the
store writes, what goes into the database is made ready.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import BinaryIO
from uuid import UUID, uuid4

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from hub import audit, history, identity
from hub.archive import is_set_aside, secure_pack, store_pack, take_back
from hub.auth import Caller
from hub.errors import Conflict, HubError, Invalid, Missing
from hub.held import adopt_staged
from hub.models import Mpack, Push
from hub.models.doomed import instant
from hub.models.history import branch_heads, move_branch
from hub.models.repository import lock_repository
from hub.pack.format import Kind
from hub.pack.reader import PackReader
from hub.records import Commit, check_branch
from hub.services import Services
from hub.work import Work
from hub.write_history import snapshot_rows, write_history


@dataclass(frozen=True, slots=True)
class Lease:
    """A condition on the branch's present head; None: the branch must not exist."""

    expected_head: str | None


@dataclass(frozen=True, slots=True)
class Incoming:
    """One push, verified on its own: what its pack holds and where the branch shall go."""

    branch: str
    tip: str
    force: bool
    lease: Lease | None
    pack: PackReader
    file: BinaryIO
    mpack_id: str
    size: int
    commits: list[Commit]
    snapshot_ids: set[str]
    named_objects: set[str]
    """Every object that a snapshot of the pack names."""
    object_ids: list[str]
    """Every object that lies in the pack."""
    upload_etag: str | None = None
    """The version of the upload that was verified, from which the store can copy; None: there is none."""


def read_incoming(
    pack: PackReader,
    file: BinaryIO,
    *,
    mpack_id: str,
    size: int,
    branch: str,
    force: bool = False,
    lease: Lease | None = None,
    head: str | None = None,
) -> Incoming:
    """The push that a verified pack makes. `head`: the new head as the client says it; None: it says nothing.

    Raises Invalid for a bad branch name, for a pack that doesn't lead to one newest commit, or to another than `head`.
    """
    check_branch(branch)
    commits = list(pack.commits())
    tip = history.only_tip(commits)
    if head is not None and head != tip:
        raise Invalid("head", "must be the newest commit of the pack.")
    return Incoming(
        branch=branch,
        tip=tip,
        force=force,
        lease=lease,
        pack=pack,
        file=file,
        mpack_id=mpack_id,
        size=size,
        commits=commits,
        snapshot_ids=set(pack.ids(Kind.SNAPSHOT)),
        named_objects=pack.named_objects(),
        object_ids=pack.ids(Kind.OBJECT),
    )


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a push has done: the branch moved, the bytes durable, the jobs queued."""

    push_id: UUID
    branch_heads: dict[str, str]
    job_ids: list[UUID]


def receive(services: Services, work: Work, caller: Caller, repository_id: UUID, incoming: Incoming) -> Receipt:
    """Take in a push.

    Raises Invalid (closure, branch name), Conflict (not a fast-forward, lease, race lost) and storage's Unavailable;
    then no job is queued and no row written, but one of the audit log when the push was a forced one.
    """
    try:
        return _receive(services, work, caller, repository_id, incoming)
    except HubError as error:
        if incoming.force:
            with services.sessions.begin() as session:
                said = {"branch": incoming.branch, "new_head": incoming.tip, "error": error.code}
                audit.record(session, "push.refused", caller, repository_id, **said)
        raise


def _receive(services: Services, work: Work, caller: Caller, repository_id: UUID, incoming: Incoming) -> Receipt:
    with services.sessions() as session:
        _check(session, repository_id, incoming)
        begun_at = instant(session)
    with ThreadPoolExecutor(1) as helper:
        storing = helper.submit(
            store_pack, services, repository_id, incoming.mpack_id, incoming.file, incoming.upload_etag
        )
        snapshots = snapshot_rows(repository_id, incoming.pack.snapshots(checked=True))
        storing.result()
    with services.sessions.begin() as session:
        repository = lock_repository(session, repository_id)
        if repository.deleted_at is not None:
            raise Missing("The repository was deleted while this push came in.")
        old_head = _check(session, repository_id, incoming)
        earlier = _last_push(session, repository_id, incoming) if old_head == incoming.tip else None
        if earlier is not None and not is_set_aside(session, repository_id, earlier.mpack_ids):
            return Receipt(earlier.push_id, branch_heads(session, repository_id), earlier.job_ids)
        secure_pack(services, session, repository_id, incoming.mpack_id, incoming.file, begun_at)
        write_history(session, repository_id, incoming.commits, snapshots)
        mpack_ids = _write_mpacks(session, repository_id, incoming)
        move_branch(session, repository_id, incoming.branch, incoming.tip)
        identity.learn(repository, incoming.branch, incoming.commits)
        heads = branch_heads(session, repository_id)
        jobs = work.enqueue_push(
            session, repository_id, mpack_ids, branch=incoming.branch, head=incoming.tip, tips=list(heads.values())
        )
        push = Push(
            push_id=uuid4(),
            repository_id=repository_id,
            principal_id=caller.principal_id,
            branch=incoming.branch,
            old_head_commit_id=old_head,
            new_head_commit_id=incoming.tip,
            forced=incoming.force,
            mpack_ids=mpack_ids,
            job_ids=jobs,
        )
        session.add(push)
        audit.record(
            session,
            "push",
            caller,
            repository_id,
            push_id=str(push.push_id),
            branch=incoming.branch,
            old_head=old_head,
            new_head=incoming.tip,
            force=incoming.force,
        )
        return Receipt(push.push_id, heads, jobs)


def _check(session: Session, repository_id: UUID, incoming: Incoming) -> str | None:
    """Raise for whatever forbids the push now; the branch's present head."""
    old_head = check_place(session, repository_id, incoming.branch, incoming.tip, incoming.lease)
    history.parent_generations(session, repository_id, incoming.commits)
    history.require_snapshots(session, repository_id, incoming.commits, incoming.snapshot_ids)
    history.require_objects(session, repository_id, incoming.named_objects, set(incoming.object_ids))
    if old_head is None or incoming.force:
        return old_head
    if not history.is_fast_forward(session, repository_id, old_head, incoming.tip, incoming.commits):
        raise Conflict(f"Branch {incoming.branch} has moved on: the push is not a fast-forward. Pull first, or force.")
    return old_head


def check_place(session: Session, repository_id: UUID, branch: str, tip: str, lease: Lease | None) -> str | None:
    """Raise for what forbids any push to this branch now: the lease, another branch's name; the present head."""
    heads = branch_heads(session, repository_id)
    old_head = heads.get(branch)
    if lease and old_head not in (lease.expected_head, tip):
        raise Conflict(f"Branch {branch} is not where the push expects it; pull first.")
    for name in heads:
        if name.startswith(f"{branch}/") or branch.startswith(f"{name}/"):
            raise Invalid("branch", f"can't be {branch}, as there is a branch {name}: one is the other's folder.")
    return old_head


def _last_push(session: Session, repository_id: UUID, incoming: Incoming) -> Push | None:
    return session.scalars(
        select(Push)
        .where(
            Push.repository_id == repository_id,
            Push.branch == incoming.branch,
            Push.new_head_commit_id == incoming.tip,
        )
        .order_by(Push.created_at.desc())
        .limit(1)
    ).one_or_none()


def _write_mpacks(session: Session, repository_id: UUID, incoming: Incoming) -> list[str]:
    """The pushed pack becomes live, and with it the staged ones that its snapshots need; all their ids."""
    # A pack that is here is live: one with commits is never staged. DO UPDATE would wait for its index job.
    session.execute(
        insert(Mpack)
        .values(
            repository_id=repository_id,
            mpack_id=incoming.mpack_id,
            state="live",
            size=incoming.size,
            object_ids=incoming.object_ids,
        )
        .on_conflict_do_nothing()
    )
    take_back(session, repository_id, incoming.mpack_id, "live")
    adopted = adopt_staged(session, repository_id, incoming.named_objects.difference(incoming.object_ids))
    return [incoming.mpack_id, *(mpack_id for mpack_id in adopted if mpack_id != incoming.mpack_id)]
