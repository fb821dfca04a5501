"""The store of a Muse working copy, `.muse/`, as its client writes it. Read only; every record is checked.

HEAD                        `ref: refs/heads/BRANCH`, or `commit: ID`
refs/heads/BRANCH           the branch's commit
commits/ID.json             a commit record, snapshots/ID.json a snapshot
objects/AB/CD…              an object, by the first two and the other digits of its id
config.toml                 [remotes.NAME] url
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, BinaryIO

from hub.client.errors import BadInput
from hub.client.tree import open_regular
from hub.errors import Invalid, TooLarge
from hub.record_keys import COMMIT_DEFAULTS
from hub.records import Commit, Snapshot, check_branch, check_id, parse_commit, parse_snapshot

DEFAULTS = COMMIT_DEFAULTS | {"format_version": 1}
"""What the Muse client takes for a key that a record does not have."""


class MuseStore:
    """The commits, snapshots and objects of the Muse repository at `root`."""

    def __init__(self, root: Path) -> None:
        """Look at nothing yet."""
        self._root = root / ".muse"

    @staticmethod
    def is_at(directory: Path) -> bool:
        """Whether `directory` is the root of a Muse working copy."""
        return (directory / ".muse" / "HEAD").is_file()

    def current_branch(self) -> str:
        """Return the branch that is checked out. Raises BadInput when it is none."""
        text = self._text("HEAD").strip()
        if not text.startswith("ref: refs/heads/"):
            raise BadInput("No branch is checked out here (.muse/HEAD names none); give one with --branch.")
        return text.removeprefix("ref: refs/heads/").strip()

    def head(self, branch: str) -> str:
        """Return the commit of a branch. Raises BadInput for a branch that is not there."""
        try:
            place = check_branch(branch)
            if not (self._root / "refs" / "heads" / place).is_file():
                raise BadInput(f"The Muse repository has no commit on a branch «{branch}».")
            return check_id(self._text(f"refs/heads/{place}").strip(), f"refs/heads/{branch}")
        except Invalid as error:
            raise BadInput(f"The Muse repository cannot be read: {error.sentence}.") from None

    def remote_url(self, name: str) -> str | None:
        """Return the address of a remote, None without one."""
        try:
            value = tomllib.loads(self._text("config.toml")) if (self._root / "config.toml").is_file() else {}
        except (tomllib.TOMLDecodeError, RecursionError):
            raise BadInput(".muse/config.toml cannot be read: it is no TOML.") from None
        remotes = value.get("remotes")
        remote = remotes.get(name) if isinstance(remotes, dict) else None
        url = remote.get("url") if isinstance(remote, dict) else None
        return url if isinstance(url, str) else None

    def commit(self, commit_id: str) -> Commit | None:
        """Return a commit, its record as the Muse client sends it; None when it is not here. Raises BadInput."""
        value = self._record("commits", commit_id)
        if value is None:
            return None
        record = {key: value.get(key, empty) for key, empty in DEFAULTS.items()}
        try:
            return parse_commit(record, f"commits/{commit_id}")
        except (Invalid, TooLarge) as error:
            raise BadInput(f"The Muse repository cannot be pushed: {error.sentence}.") from None

    def snapshot(self, snapshot_id: str) -> Snapshot:
        """Return a snapshot. Raises BadInput when it is not here, or wrong."""
        value = self._record("snapshots", snapshot_id)
        if value is None:
            raise BadInput(f"The Muse repository lacks snapshot {snapshot_id}; `muse verify` looks for more.")
        try:
            return parse_snapshot(value, f"snapshots/{snapshot_id}")
        except (Invalid, TooLarge) as error:
            raise BadInput(f"The Muse repository cannot be pushed: {error.sentence}.") from None

    def open_object(self, object_id: str, path: str) -> BinaryIO:
        """Open an object, `path` being a file that has it. Raises BadInput when it is not here."""
        location = self._root.joinpath("objects", object_id[:2], object_id[2:])
        if not location.is_file():
            raise BadInput(
                f"The Muse repository lacks object {object_id}, the content of «{path}»; `muse verify` looks for more."
            )
        return open_regular(location, f".muse/objects/{object_id[:2]}/{object_id[2:]}")

    def _record(self, folder: str, entity_id: str) -> dict[str, Any] | None:
        name = f"{folder}/{entity_id}.json"
        if not (self._root / name).is_file():
            return None
        try:
            value = json.loads(self._text(name))
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise BadInput(f".muse/{name} is damaged: it should be a JSON object.")
        return value

    def _text(self, name: str) -> str:
        with open_regular(self._root / name, f".muse/{name}") as file:
            try:
                return file.read().decode()
            except (OSError, UnicodeDecodeError):
                raise BadInput(f".muse/{name} cannot be read.") from None
