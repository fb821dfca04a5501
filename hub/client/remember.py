"""What a directory notes after a push, so that the next one and `packhouse log` know where it is."""

from __future__ import annotations

import io
from pathlib import Path

from hub.client import workdir
from hub.client.workdir import Workdir
from hub.pack.writer import PackWriter
from hub.records import Commit, Snapshot


def remember(directory: Path, now_at: Workdir, made: tuple[Snapshot, Commit] | None = None) -> str:
    """Note where the directory is, unless its notes are about another repository; keep what was `made`.

    Returns a sentence when that is impossible: a directory that cannot be written is no reason to fail a
    push.
    """
    known = workdir.load(directory)
    if known is not None and known.url != now_at.url:
        return ""
    try:
        if made is not None:
            _keep(directory, *made)
        if now_at.head is not None:
            workdir.save_heads(directory, workdir.load_heads(directory) | {now_at.branch: now_at.head})
        workdir.save(directory, now_at)
    except OSError as error:
        return f"{workdir.STATE} cannot be written ({error.strerror}); name the address next time."
    return ""


def _keep(directory: Path, snapshot: Snapshot, commit: Commit) -> None:
    """Keep the commit and its snapshot as a pack: the objects are the files of the directory."""
    content = io.BytesIO()
    writer = PackWriter(content)
    writer.add_snapshot(snapshot)
    writer.add_commit(commit)
    kept = workdir.pack_path(directory, writer.finish().mpack_id)
    kept.parent.mkdir(parents=True, exist_ok=True)
    fresh = kept.with_suffix(".tmp")
    fresh.write_bytes(content.getvalue())
    fresh.replace(kept)
