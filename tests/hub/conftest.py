"""Fixtures of the hub's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from storage import MemoryStore
from tests.hub.world import History, World


@pytest.fixture
def new_world(database_url: str, committed_db: psycopg.Connection[Any]) -> Iterator[Callable[..., World]]:
    """Make a hub on the test's database, with strict stores in memory unless given. Its rows go with the test."""
    worlds: list[World] = []

    def make(**options: Any) -> World:
        options.setdefault("archive", MemoryStore())
        options.setdefault("cache", MemoryStore())
        worlds.append(World(database_url, **options))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


@pytest.fixture
def world(new_world: Callable[..., World]) -> World:
    """A hub with the user alice and the empty repository alice/data."""
    return new_world()


@pytest.fixture
def history() -> History:
    """An empty history to commit to."""
    return History()
