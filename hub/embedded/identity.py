"""As whom a server that refuses root may run.

1. A normal user: as himself.
2. Root, or a user without a passwd entry: in a user namespace without a map (see `launch`). Nothing is created
   or opened up, and files stay root's.
3. Where the kernel refuses namespaces (many containers, every chroot): as the user `postgres`, else `nobody`.
"""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from hub.embedded.processes import LAUNCHER

CANDIDATES = ("postgres", "nobody")
TRUE = "/bin/true"


class NoIdentity(RuntimeError):
    """There is nobody as whom the server could run."""


@dataclass(frozen=True, slots=True)
class Identity:
    """As whom: `word` for the launcher; `uid` and `gid` of the data's owner when that is another user."""

    word: str
    uid: int | None = None
    gid: int | None = None

    @property
    def is_other_user(self) -> bool:
        """Whether files that the server must own need a chown."""
        return self.uid is not None


OWN = Identity("own")
NAMESPACE = Identity("namespace")


def _has_passwd_entry() -> bool:
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return True


def _namespaces_work() -> bool:
    command = [sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), "0", NAMESPACE.word, TRUE]
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0


def _other_user() -> Identity:
    for name in CANDIDATES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Identity(f"{entry.pw_uid}:{entry.pw_gid}", entry.pw_uid, entry.pw_gid)
    raise NoIdentity(f"Postgres refuses to run as root, and there is none of the users {', '.join(CANDIDATES)}")


def choose_identity() -> Identity:
    """Return as whom Postgres is to run here. Raises NoIdentity when there is no way."""
    if os.geteuid() != 0 and _has_passwd_entry():
        return OWN
    if _namespaces_work():
        return NAMESPACE
    if os.geteuid() != 0:
        raise NoIdentity("Postgres needs a user with a passwd entry, and this kernel gives no user namespace")
    return _other_user()


def can_reach(identity: Identity, path: Path) -> bool:
    """Say whether another user can walk to `path`: every directory above lets everybody pass."""
    return not identity.is_other_user or all(
        parent.stat().st_mode & 0o001 for parent in (path.resolve(), *path.resolve().parents)
    )
