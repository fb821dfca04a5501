"""What an ordinary user has on disk before a push: each object a file of its own, nothing packed."""

from __future__ import annotations

import json
import os
from pathlib import Path

from bench import wire_git
from bench.worlds import Commit
from hub import records


def muse(commits: list[Commit], root: Path) -> None:
    """A Muse working copy with these commits on main, as its client leaves it."""
    store = root / ".muse"
    for folder in ("commits", "snapshots", "refs/heads"):
        (store / folder).mkdir(parents=True)
    for commit in commits:
        for path, data in commit.changed.items():
            _write(root / path, data)
            object_id = records.object_id(data)
            _write(store / "objects" / object_id[:2] / object_id[2:], data)
        snapshot_id = commit.snapshot["snapshot_id"]
        (store / "snapshots" / f"{snapshot_id}.json").write_text(json.dumps(commit.snapshot, indent=2))
        (store / "commits" / f"{commit.commit_id}.json").write_text(json.dumps(commit.record, indent=2))
    (store / "refs" / "heads" / "main").write_text(commits[-1].commit_id)
    (store / "HEAD").write_text("ref: refs/heads/main\n")


def git(commits: list[Commit], root: Path) -> None:
    """A git repository with these commits on main, made by `git add` and `git commit`; no gc has run or will run."""
    wire_git.run("init", "-q", "-b", "main", str(root))
    for name, value in (("user.name", "bench"), ("user.email", "bench@localhost"), ("gc.auto", "0")):
        wire_git.run("-C", str(root), "config", name, value)
    for commit in commits:
        for path, data in commit.changed.items():
            _write(root / path, data)
        wire_git.run("-C", str(root), "add", "-A")
        wire_git.run("-C", str(root), "commit", "-q", "-m", commit.record["message"])


def settle() -> None:
    """Let the file system write what was made, so that it does not disturb what is measured."""
    os.sync()


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
