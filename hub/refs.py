"""What a person may call a commit by: a branch, a release's tag, a label, or the id."""

from __future__ import annotations

import re
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.orm import Session

from hub.errors import Missing
from hub.models import Branch, Commit, Release, Tag

ID = re.compile(r"[0-9a-f]{64}")


def find_commit(session: Session, repository_id: UUID, ref: str) -> Commit:
    """The commit that `ref` names: first a branch, then the tag of a published release, a label, a commit id.

    A label that sits on several commits names none of them. Raises Missing.
    """
    found = None if "\0" in ref else _named(session, repository_id, ref)
    if found is None and ID.fullmatch(ref):
        found = ref
    commit = None if found is None else session.get(Commit, (repository_id, found))
    if commit is None:
        raise Missing("There is no branch, tag or commit of this name in this repository.")
    return commit


def _named(session: Session, repository_id: UUID, ref: str) -> str | None:
    branch = session.get(Branch, (repository_id, ref))
    if branch is not None:
        return branch.head_commit_id
    release = session.get(Release, (repository_id, ref))
    if release is not None and not release.is_draft:
        return release.commit_id
    labelled = session.scalars(
        select(Tag.commit_id).where(Tag.repository_id == repository_id, Tag.tag == ref).distinct().limit(2)
    ).all()
    return labelled[0] if len(labelled) == 1 else None
