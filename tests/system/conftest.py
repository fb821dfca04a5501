"""System tests use the hub's fixtures as well."""

from tests.hub.conftest import history, new_world

__all__ = ["history", "new_world"]
