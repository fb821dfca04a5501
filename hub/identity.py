"""What a repository takes over from the first pushes: the client's repository id, the domain, the default branch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeGuard
from uuid import UUID

from hub.models import Repository
from hub.record_bytes import decode_record, delta_domain
from hub.records import Commit

DEFAULT_DOMAIN = "code"
DOMAIN = re.compile(r"[a-z][a-z0-9_-]{0,63}")


def learn(repository: Repository, branch: str, commits: Sequence[Commit]) -> None:
    """Set what the repository does not know yet.

    - `muse_repo_id`: that of the first pushed root commit, when it is a UUID, so that source and clones agree.
    - `domain`: what a commit's `structured_delta` says, unless the repository was made with another than the default;
      an unknown one would make the client's later commands crash.
    - `default_branch`: the first pushed branch whose name has no slash (the Muse client can't clone another).
    """
    if repository.default_branch is None and "/" not in branch:
        repository.default_branch = branch
    for commit in commits:
        if repository.muse_repo_id is not None and repository.domain != DEFAULT_DOMAIN:
            return
        if repository.muse_repo_id is None and not commit.parents:
            repo_id = decode_record(commit.raw, "commit").get("repo_id")
            if _is_uuid(repo_id):
                repository.muse_repo_id = repo_id
        domain = delta_domain(commit.raw) if repository.domain == DEFAULT_DOMAIN else None
        if domain is not None and DOMAIN.fullmatch(domain):
            repository.domain = domain


def _is_uuid(value: object) -> TypeGuard[str]:
    if not isinstance(value, str):
        return False
    try:
        return str(UUID(value)) == value.lower()
    except ValueError:
        return False
