"""What a request or a task is handed: the database, the two stores, the settings."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.orm import Session, sessionmaker

from hub.settings import Settings
from storage import Store


@dataclass(frozen=True, slots=True)
class Services:
    """The open services of one process.

    `archive` holds the truth: pushed packs. `cache` holds what can be built again: packs made for fetches.
    """

    settings: Settings
    sessions: sessionmaker[Session]
    archive: Store
    cache: Store
