"""Cloning a repository: ask, download, verify, write, put in place. The straight line, top to bottom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hub.client import workdir
from hub.client.answers import PackOffer
from hub.client.checkout import write_tree
from hub.client.closure import check_complete
from hub.client.destination import staged
from hub.client.errors import Refused, VerificationFailed
from hub.client.progress import Progress
from hub.client.reserved import Skipped
from hub.client.transport import Remote
from hub.client.workdir import Workdir
from hub.errors import HubError
from hub.pack.format import Limits
from hub.pack.verify import verify_records
from hub.records import Invalid, check_branch


@dataclass(frozen=True, slots=True)
class CloneResult:
    """What a clone brought; `head` and `mpack_id` are None for an empty repository. Sizes are bytes."""

    url: str
    directory: Path
    branch: str
    head: str | None
    snapshot_id: str | None
    mpack_id: str | None
    branches: int
    commits: int
    files: int
    bytes_received: int
    skipped: tuple[Skipped, ...]


def clone(
    remote: Remote, directory: Path, progress: Progress, *, branch: str | None = None, force: bool = False
) -> CloneResult:
    """Put `branch` of the repository (None: its default) into `directory`, and the pack of all branches.

    Every byte is verified before a file is written; `directory` appears whole or not at all, see `staged`.
    Raises the errors of Remote, LocalConflict, VerificationFailed.
    """
    with staged(directory, force=force) as building:
        progress.begin("Waiting for the hub", None)
        offer = remote.fetch_mpack()
        if offer.mpack_id is None:
            return _empty(remote, directory, building, offer, branch)
        incoming = workdir.pack_path(building, "incoming")
        incoming.parent.mkdir(parents=True)
        offer = remote.download(offer, incoming)
        if offer.mpack_id is None:
            raise VerificationFailed("The hub offers no pack any more.")
        chosen = _choose(branch, offer.tips, offer.default_branch)
        progress.begin("Verifying", None)
        with incoming.open("rb") as file:
            try:
                reader, commits, snapshot = verify_records(file, limits=Limits(), tip=offer.tips[chosen])
                reached = check_complete(reader, commits, offer.tips.values())
                if snapshot is None:
                    raise VerificationFailed(f"The hub sent an incomplete pack: it lacks the files of {chosen}.")
                skipped = write_tree(file, reader, snapshot, building, progress)
            except HubError as error:
                raise VerificationFailed(f"The received pack is damaged: {error.sentence}.") from None
        incoming.rename(workdir.pack_path(building, offer.mpack_id))
        workdir.save_heads(building, offer.tips)
        workdir.save(building, Workdir(remote.url, chosen, offer.tips[chosen]))
        return CloneResult(
            remote.url, directory, chosen, offer.tips[chosen], snapshot.snapshot_id, offer.mpack_id,
            len(offer.tips), len(reached), len(snapshot.manifest) - len(skipped), offer.size, skipped,
        )  # fmt: skip


def _empty(remote: Remote, directory: Path, building: Path, offer: PackOffer, branch: str | None) -> CloneResult:
    if branch is not None:
        raise _no_branch(branch, {})
    chosen = offer.default_branch or "main"
    workdir.save(building, Workdir(remote.url, chosen, None))
    return CloneResult(remote.url, directory, chosen, None, None, None, 0, 0, 0, 0, ())


def _choose(branch: str | None, tips: Mapping[str, str], default: str | None) -> str:
    """Return the branch whose files are written: the one asked for, the default, `main`, or the first."""
    if branch is not None and branch not in tips:
        raise _no_branch(branch, tips)
    candidates = (name for name in (branch, default, "main", *tips) if name in tips)
    chosen = next(candidates, "")
    try:
        return check_branch(chosen)
    except Invalid as error:
        raise VerificationFailed(f"The hub names a branch that cannot be: {error.sentence}.") from None


def _no_branch(branch: str, tips: Mapping[str, str]) -> Refused:
    there = f"there are {', '.join(sorted(tips)[:20])}" if tips else "it has no branch yet"
    return Refused(404, "NO_SUCH_BRANCH", f"The repository has no branch «{branch}»; {there}.")
