"""Pulling: fetch, then bring the files to the branch's new commit without losing what was done to them here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hub.client import packs, workdir
from hub.client.difference import Blocked, plan
from hub.client.errors import Refused, VerificationFailed
from hub.client.fetching import FetchResult, fetch, receive
from hub.client.progress import Progress
from hub.client.transport import Remote
from hub.client.update import apply, check_names, gather, staging
from hub.client.workdir import Workdir
from hub.records import Commit


@dataclass(frozen=True, slots=True)
class PullResult:
    """What a pull did; `head` is None in an empty repository. `written` and `deleted` count files."""

    branch: str
    before: str | None
    head: str | None
    written: int
    deleted: int
    fetched: FetchResult

    @property
    def up_to_date(self) -> bool:
        """Whether the files were those of the branch already."""
        return self.before == self.head


def pull(remote: Remote, directory: Path, progress: Progress, *, force: bool = False) -> PullResult:
    """Bring the files of a working directory from the commit they were made from to the branch's head.

    Files of the user's own that the update does not touch stay as they are. `force` follows a branch that no
    longer contains that commit; it overwrites nothing either. The caller has locked the directory. Raises
    Blocked, before anything is touched, when the update would overwrite a change made here; Refused when the
    branch is gone or was replaced; the errors of Remote; VerificationFailed.
    """
    known = workdir.opened(directory)
    fetched = fetch(remote, directory, progress)
    head = fetched.heads.get(known.branch)
    if head is None and known.head is None and not fetched.heads:
        return PullResult(known.branch, None, None, 0, 0, fetched)
    if head is None:
        there = f"there are {', '.join(sorted(fetched.heads)[:20])}" if fetched.heads else "it has no branch"
        raise Refused(404, "NO_SUCH_BRANCH", f"The repository has no branch «{known.branch}» any more; {there}.")
    pending = workdir.load_pending(directory)
    if head == known.head and pending is None:
        return PullResult(known.branch, head, head, 0, 0, fetched)
    commits = packs.read_commits(directory)
    if head != known.head and not force and not _leads_to(commits, head, known.head):
        raise Refused(
            409,
            "DIVERGED",
            f"The branch {known.branch} was replaced: {head[:12]} does not contain {(known.head or '')[:12]}, which "
            "your files were made from. Follow it with --force, which overwrites no change of yours.",
        )
    written, deleted = _update(remote, directory, known, head, pending, progress)
    return PullResult(known.branch, known.head, head, written, deleted, fetched)


def _update(
    remote: Remote, directory: Path, known: Workdir, head: str, pending: str | None, progress: Progress
) -> tuple[int, int]:
    """Bring the files to `head`; return how many were written and deleted."""
    progress.begin("Comparing files", None)
    root = directory.resolve()
    target = _manifest(remote, directory, head, progress)
    base = {} if known.head is None else _manifest(remote, directory, known.head, progress)
    ours = [base] if pending is None else [base, _manifest(remote, directory, pending, progress)]
    changes, conflicts = plan(root, ours, target)
    if conflicts:
        raise Blocked(conflicts)
    needed = {change.after for change in changes if change.after is not None}
    with staging(root) as folder:
        check_names(folder, target)
        if gather(root, folder, needed, base):
            receive(remote, directory, [head], {}, progress)
            missing = gather(root, folder, needed, base)
            if missing:
                raise VerificationFailed(f"The hub does not send object {min(missing)}.")
        workdir.save_pending(directory, head)
        apply(root, folder, changes, progress)
    workdir.save(directory, Workdir(known.url, known.branch, head))
    workdir.save_pending(directory, None)
    return len([change for change in changes if change.after]), len([change for change in changes if not change.after])


def _manifest(remote: Remote, directory: Path, commit_id: str, progress: Progress) -> Mapping[str, str]:
    """Return the files of a commit; what is not kept here is asked for."""
    for attempt in ("kept", "asked for"):
        manifest = packs.read_manifest(directory, commit_id)
        if manifest is not None:
            return manifest
        if attempt == "kept":
            receive(remote, directory, [commit_id], {}, progress)
    raise VerificationFailed(f"The hub does not send commit {commit_id}.")


def _leads_to(commits: Mapping[str, Commit], head: str, ancestor: str | None) -> bool:
    """Whether `ancestor` is in the history of `head`, as far as it is kept here; None always is."""
    if ancestor is None:
        return True
    seen: set[str] = set()
    waiting = [head]
    while waiting:
        commit_id = waiting.pop()
        if commit_id == ancestor:
            return True
        if commit_id not in seen and commit_id in commits:
            seen.add(commit_id)
            waiting.extend(commits[commit_id].parents)
    return False
