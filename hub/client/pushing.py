"""Pushing a directory: snapshot, commit, pack, upload, move the branch. The straight line, top to bottom."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from hub.client import packs, unsent, workdir
from hub.client.answers import Job, Refs
from hub.client.errors import BadInput, LocalConflict, Refused
from hub.client.file_index import FileIndex
from hub.client.progress import Progress
from hub.client.remember import remember
from hub.client.reserved import Skipped
from hub.client.sending import Move, send
from hub.client.transport import Remote
from hub.client.tree import File, Tree, open_regular, read_tree
from hub.client.workdir import Workdir
from hub.errors import TooLarge
from hub.pack.format import PackSummary
from hub.pack.writer import PackWriter
from hub.records import (
    EMPTY_OBJECT_ID,
    Commit,
    Invalid,
    Snapshot,
    check_branch,
    commit_record,
    parse_commit,
    parse_snapshot,
    snapshot_record,
)


@dataclass(frozen=True, slots=True)
class Wish:
    """What the caller wants pushed: the files of `directory`, as a commit on `branch`.

    `branch` None: the working directory's own, else `main`. `force` replaces a branch that has moved on since
    the working directory was cloned or pushed. `allow_empty` commits even when no file has changed. `rules`: leave out
    what `.museignore` and `.gitignore` name, unless the commit that the files were made from has it.
    """

    directory: Path
    message: str
    branch: str | None = None
    author: str = ""
    force: bool = False
    allow_empty: bool = False
    rules: bool = True


@dataclass(frozen=True, slots=True)
class PushResult:
    """What a push did. `push_id` is None when everything was up to date; sizes are bytes."""

    url: str
    branch: str
    commit_id: str
    snapshot_id: str
    parent: str | None
    files: int
    objects_sent: int
    bytes_sent: int
    push_id: str | None
    jobs: tuple[Job, ...]
    skipped: tuple[Skipped, ...]
    ignored: int = 0
    note: str = ""
    """A sentence about what did not matter enough to fail; empty without one."""

    @property
    def up_to_date(self) -> bool:
        """Whether nothing had changed and nothing was pushed."""
        return self.push_id is None


def push_directory(
    remote: Remote, wish: Wish, progress: Progress, now: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> PushResult:
    """Commit the files of a directory on top of a branch of `remote`.

    In a working directory of the same repository the parent is the commit it is at, and a branch that has
    moved since is refused unless `wish.force`. Any other directory is published on top of the branch's head.
    Either way the branch must still be at the head seen here when it is moved. Raises the errors of Remote,
    and BadInput for what cannot be read.
    """
    if not wish.directory.is_dir():
        raise BadInput(f"«{wish.directory}» is not a directory.")
    base = workdir.load(wish.directory)
    if base is not None and base.url != remote.url:
        base = None
    if base is not None and workdir.load_pending(wish.directory) is not None:
        raise LocalConflict("A pull was interrupted here, so some files are newer than others: pull again first.")
    branch = _branch(wish, base)
    refs = remote.refs()
    head = refs.branch_heads.get(branch)
    tree = _read(wish, base, progress)
    snapshot = _snapshot(tree, now())
    if head is not None and not wish.allow_empty and refs.snapshots.get(branch) == snapshot.snapshot_id:
        note = remember(wish.directory, Workdir(remote.url, branch, head))
        return PushResult(
            remote.url, branch, head, snapshot.snapshot_id, None, len(tree.files),
            0, 0, None, (), tree.skipped, tree.ignored, note,
        )  # fmt: skip
    # A repository without a branch knows no parent either: this is its first commit, whatever was before.
    parent = _parent(base, head, branch, force=wish.force) if base and refs.branch_heads else head
    made_of = {"url": remote.url, "branch": branch, "parent": parent, "snapshot_id": snapshot.snapshot_id}
    at = unsent.begin(wish.directory, {**made_of, "message": wish.message, "author": wish.author}, now())
    snapshot = replace(snapshot, created_at=at.isoformat())
    commit = _commit(refs, snapshot, parent, branch, wish, at)
    with tempfile.TemporaryFile() as file:
        summary = _write_pack(file, _objects_to_send(remote, tree), snapshot, commit, progress)
        pushed = send(remote, file, summary, Move(branch, commit.commit_id, head, force=wish.force), refs.inline_bytes)
    unsent.end(wish.directory)
    note = remember(wish.directory, Workdir(remote.url, branch, commit.commit_id), (snapshot, commit))
    return PushResult(
        remote.url, branch, commit.commit_id, snapshot.snapshot_id, parent, len(tree.files),
        summary.objects, summary.size, pushed.push_id, pushed.jobs, tree.skipped, tree.ignored, note,
    )  # fmt: skip


def _branch(wish: Wish, base: Workdir | None) -> str:
    if wish.branch is None:
        return "main" if base is None else base.branch
    try:
        return check_branch(wish.branch)
    except Invalid as error:
        raise BadInput(f"The branch cannot be called so: {error.sentence}.") from None


def _parent(base: Workdir, head: str | None, branch: str, *, force: bool) -> str | None:
    """Return the commit that the files were made from; on the branch's head they would undo others' work."""
    if head is not None and head != base.head and not force:
        raise Refused(
            409,
            "DIVERGED",
            f"The branch {branch} has moved to {head[:12]} since this directory was at "
            f"{(base.head or 'no commit')[:12]}: `packhouse pull` brings what is new, --force replaces it.",
        )
    return base.head


def _read(wish: Wish, base: Workdir | None, progress: Progress) -> Tree:
    begun = False

    def hashed(done: int, total: int) -> None:
        nonlocal begun
        if not begun:
            progress.begin("Reading files", total)
            begun = True
        progress.at(done)

    head = None if base is None else base.head
    tracked = None if head is None else packs.read_manifest(wish.directory, head)
    with closing(FileIndex(wish.directory)) as index:
        tree = read_tree(wish.directory, hashed, rules=wish.rules, tracked=tracked or {}, index=index)
        index.save()
    return tree


def _snapshot(tree: Tree, now: datetime) -> Snapshot:
    try:
        return parse_snapshot(snapshot_record(tree.manifest, now.isoformat()))
    except (Invalid, TooLarge) as error:
        raise BadInput(f"The directory cannot be a snapshot: {error.sentence}.") from None


def _commit(refs: Refs, snapshot: Snapshot, parent: str | None, branch: str, wish: Wish, now: datetime) -> Commit:
    record = commit_record(
        snapshot_id=snapshot.snapshot_id,
        message=wish.message,
        committed_at=now.isoformat(),
        parents=() if parent is None else (parent,),
        author=wish.author,
        branch=branch,
        repo_id=refs.repo_id,
    )
    try:
        return parse_commit(record)
    except (Invalid, TooLarge) as error:
        raise BadInput(f"The commit cannot be made: {error.sentence}.") from None


def _objects_to_send(remote: Remote, tree: Tree) -> list[File]:
    """Return one file for each object that the repository lacks, in the order of their paths."""
    first: dict[str, File] = {}
    for file in tree.files:
        first.setdefault(file.object_id, file)
    first.pop(EMPTY_OBJECT_ID, None)
    missing = remote.filter_objects(first)
    return [file for file in first.values() if file.object_id in missing]


def _write_pack(
    out: BinaryIO, files: list[File], snapshot: Snapshot, commit: Commit, progress: Progress
) -> PackSummary:
    progress.begin("Packing", len(files))
    try:
        writer = PackWriter(out)
        for number, file in enumerate(files, start=1):
            _add(writer, file)
            progress.at(number)
        writer.add_snapshot(snapshot)
        writer.add_commit(commit)
        summary = writer.finish()
        out.flush()
    except OSError as error:
        raise BadInput(f"The pack cannot be written to the temporary directory: {error.strerror}.") from None
    return summary


def _add(writer: PackWriter, file: File) -> None:
    with open_regular(file.location, file.path) as content:
        try:
            writer.add_object(file.object_id, content, file.size)
        except Invalid:
            raise BadInput(f"«{file.path}» was changed while it was being read; try again.") from None
        except TooLarge as error:
            raise BadInput(f"«{file.path}» cannot be pushed: {error.sentence}.") from None
