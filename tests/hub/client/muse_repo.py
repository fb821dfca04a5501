"""A Muse working copy, made from what is known of its layout."""

from __future__ import annotations

import json
from pathlib import Path

from tests.hub.world import History


def write_muse(root: Path, history: History, *, branch: str = "main", url: str | None = None, **heads: str) -> Path:
    """Write all that `history` has into `root/.muse`, with the branches `heads`; `branch` is checked out."""
    muse = root / ".muse"
    for folder in ("commits", "snapshots", "refs/heads"):
        (muse / folder).mkdir(parents=True, exist_ok=True)
    (muse / "HEAD").write_text(f"ref: refs/heads/{branch}\n")
    (muse / "repo.json").write_text(json.dumps({"repo_id": "af19da88-8180-4bd3-844f-24aa3d546cd5", "domain": "code"}))
    if url is not None:
        (muse / "config.toml").write_text(f'[user]\ntype = "human"\n\n[remotes.origin]\nurl = "{url}"\n')
    for folder, records in (("commits", history.commits), ("snapshots", history.snapshots)):
        for entity_id, record in records.items():
            (muse / folder / f"{entity_id}.json").write_text(json.dumps(record, indent=2) + "\n")
    for object_id, content in history.contents.items():
        place = muse / "objects" / object_id[:2] / object_id[2:]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    for name, head in heads.items():
        place = muse / "refs" / "heads" / name.replace("__", "/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(head)
    return root
