"""The hub's tables as Flask-SQLAlchemy models; query functions stand beside the models they read."""

from hub.models.audit import Audit
from hub.models.base import db
from hub.models.doomed import Doomed
from hub.models.facts import CodeIntel, LastCommits
from hub.models.history import Branch, Commit, Snapshot
from hub.models.mpack import FetchMpackCache, Mpack, MpackIndex
from hub.models.principal import Principal, Token
from hub.models.push import Push
from hub.models.release import Release, Tag
from hub.models.repository import Membership, Repository

__all__ = [
    "Audit",
    "Branch",
    "CodeIntel",
    "Commit",
    "Doomed",
    "FetchMpackCache",
    "LastCommits",
    "Membership",
    "Mpack",
    "MpackIndex",
    "Principal",
    "Push",
    "Release",
    "Repository",
    "Snapshot",
    "Tag",
    "Token",
    "db",
]
