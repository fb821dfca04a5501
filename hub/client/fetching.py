"""Fetching: bring what the branches of the hub have gained, and touch no file of the working directory."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hub.client import packs, workdir
from hub.client.closure import Known, check_complete
from hub.client.errors import BadInput, VerificationFailed
from hub.client.progress import Progress
from hub.client.transport import Remote
from hub.errors import HubError
from hub.pack.format import Kind, Limits
from hub.pack.verify import verify_pack
from hub.records import Commit, Invalid, check_branch


@dataclass(frozen=True, slots=True)
class Moved:
    """A branch that is not where it was; `before` None: it is new, `after` None: it is gone."""

    branch: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class FetchResult:
    """What a fetch brought. Sizes are bytes."""

    url: str
    heads: dict[str, str]
    moved: tuple[Moved, ...]
    commits: int
    bytes_received: int


def fetch(remote: Remote, directory: Path, progress: Progress) -> FetchResult:
    """Bring the branches' new commits with all they hold, as one pack; note where the branches are.

    `directory` must be a working directory of `remote`, and locked by the caller. Raises the errors of Remote,
    BadInput for a damaged directory, VerificationFailed.
    """
    progress.begin("Asking the hub", None)
    before = workdir.load_heads(directory)
    heads = _checked(remote.refs().branch_heads)
    commits = packs.read_commits(directory)
    want = sorted(set(heads.values()) - commits.keys())
    received: tuple[int, int] = (0, 0)
    if want:
        received = receive(remote, directory, want, _complete(directory, commits), progress)
    workdir.save_heads(directory, heads)
    moved = tuple(
        Moved(name, before.get(name), heads.get(name))
        for name in sorted(before.keys() | heads.keys())
        if before.get(name) != heads.get(name)
    )
    return FetchResult(remote.url, heads, moved, *received)


def receive(
    remote: Remote, directory: Path, want: list[str], have: Mapping[str, Commit], progress: Progress
) -> tuple[int, int]:
    """Bring a pack of `want` without what `have` reaches, verify it and keep it.

    Returns how many commits it brought, and its bytes. Raises the errors of Remote, VerificationFailed.
    """
    incoming = directory / workdir.STATE / f"incoming-{secrets.token_hex(8)}"
    offer = remote.fetch_mpack(want, sorted(have))
    if offer.mpack_id is None:
        raise VerificationFailed("The hub names branches that it does not send.")
    try:
        offer = remote.download(offer, incoming, lambda: remote.fetch_mpack(want, sorted(have)))
        progress.begin("Verifying", None)
        with incoming.open("rb") as file:
            try:
                reader = verify_pack(file, limits=Limits(), expect_id=offer.mpack_id)
            except HubError as error:
                raise VerificationFailed(f"The received pack is damaged: {error.sentence}.") from None
            commits = {commit.commit_id: commit for commit in reader.commits()}
            brought = check_complete(reader, commits, want, _known(directory, have))
        kept = workdir.pack_path(directory, offer.mpack_id or "")
        kept.parent.mkdir(exist_ok=True)
        incoming.replace(kept)
    except OSError as error:
        raise BadInput(f"The pack cannot be kept in {workdir.STATE}: {error.strerror}.") from None
    finally:
        incoming.unlink(missing_ok=True)
    return len(brought), offer.size


def _complete(directory: Path, commits: Mapping[str, Commit]) -> dict[str, Commit]:
    """The heads whose files are all here: in the packs, or, for one that was pushed, in the directory itself."""
    known = workdir.load(directory)
    heads = {*workdir.load_heads(directory).values(), (known.head or "") if known else ""}
    snapshots = packs.kept_ids(directory, Kind.SNAPSHOT)
    return {head: commits[head] for head in heads if head in commits and commits[head].snapshot_id in snapshots}


def _known(directory: Path, have: Mapping[str, Commit]) -> Known:
    objects = packs.kept_ids(directory, Kind.OBJECT)
    for commit in have.values():
        snapshot = packs.read_snapshot(directory, commit.snapshot_id)
        if snapshot is not None:
            objects.update(snapshot.manifest.values())
    return Known(packs.kept_ids(directory, Kind.COMMIT), packs.kept_ids(directory, Kind.SNAPSHOT), objects)


def _checked(heads: Mapping[str, str]) -> dict[str, str]:
    try:
        return {check_branch(name): head for name, head in heads.items()}
    except Invalid as error:
        raise VerificationFailed(f"The hub names a branch that cannot be: {error.sentence}.") from None
