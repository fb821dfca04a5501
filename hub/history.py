"""Rules over history that need no lock and write nothing: the tip, generations, fast-forward, closure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from sqlalchemy.orm import Session

from hub.errors import Invalid
from hub.held import held_objects
from hub.models.history import generations, is_ancestor, known_snapshots
from hub.records import Commit


def only_tip(commits: Sequence[Commit]) -> str:
    """The one commit that is nobody's parent among these: what the branch will name.

    Raises Invalid when there is none or more than one.
    """
    parents = {parent for commit in commits for parent in commit.parents}
    tips = [commit.commit_id for commit in commits if commit.commit_id not in parents]
    if len(tips) != 1:
        raise Invalid("commits", f"must lead to exactly one newest commit, and lead to {len(tips)}.")
    return tips[0]


def in_order(commits: Iterable[Commit], known: Mapping[str, int]) -> list[tuple[Commit, int]]:
    """The commits with their generations, parents before children.

    `known` has the generation of each parent outside. A commit's is 0 without parents, else 1 + the greatest of
    theirs.
    """
    waiting = {commit.commit_id: commit for commit in commits}
    generation = dict(known)
    ordered: list[tuple[Commit, int]] = []
    for start in list(waiting):
        stack = [start]
        while stack:
            commit = waiting.get(stack[-1])
            if commit is None:
                stack.pop()
                continue
            missing = [parent for parent in commit.parents if parent in waiting]
            if missing:
                stack.extend(missing)
                continue
            number = max((generation[parent] + 1 for parent in commit.parents), default=0)
            generation[commit.commit_id] = number
            ordered.append((commit, number))
            del waiting[stack.pop()]
    return sorted(ordered, key=lambda item: item[1])


def outside_parents(commits: Sequence[Commit]) -> set[str]:
    """Parents that are not among the commits themselves."""
    return {parent for commit in commits for parent in commit.parents} - {commit.commit_id for commit in commits}


def parent_generations(session: Session, repository_id: UUID, commits: Sequence[Commit]) -> dict[str, int]:
    """The generation of each parent outside the push.

    Raises Invalid for one that the repository does not have: a client may think that it has, because it remembers
    another remote's branches.
    """
    outside = outside_parents(commits)
    found = generations(session, repository_id, outside)
    unknown = sorted(outside - found.keys())
    if unknown:
        raise Invalid(
            "commits",
            f"parent {unknown[0]} is unknown here. If another remote has it, run `muse remote remove` for that remote "
            "(or delete .muse/remotes/<other>) and push again.",
        )
    return found


def require_snapshots(session: Session, repository_id: UUID, commits: Sequence[Commit], brought: set[str]) -> None:
    """Raise Invalid for a commit whose snapshot is neither in the push nor in the repository."""
    named = {commit.snapshot_id for commit in commits} - brought
    unknown = sorted(named - known_snapshots(session, repository_id, named))
    if unknown:
        raise Invalid("snapshots", f"snapshot {unknown[0]} is named by a commit, but neither sent nor held here.")


def require_objects(session: Session, repository_id: UUID, named: set[str], brought: set[str]) -> None:
    """Raise Invalid for an object that is neither in the push nor held by the repository."""
    outside = named - brought
    missing = sorted(outside - held_objects(session, repository_id, outside))
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise Invalid("objects", f"object {missing[0]}{more} is named by a snapshot, but was never uploaded here.")


def is_fast_forward(session: Session, repository_id: UUID, old: str, new: str, commits: Sequence[Commit]) -> bool:
    """Whether `old` is `new` or an ancestor of it, in the stored history and these commits together."""
    by_id = {commit.commit_id: commit for commit in commits}
    seen: set[str] = set()
    stack, frontier = [new], set()
    while stack:
        commit_id = stack.pop()
        if commit_id == old:
            return True
        if commit_id in seen:
            continue
        seen.add(commit_id)
        if commit_id in by_id:
            stack.extend(by_id[commit_id].parents)
        else:
            frontier.add(commit_id)
    return bool(frontier) and is_ancestor(session, repository_id, old, frontier)
