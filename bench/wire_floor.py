"""The floor: what the same bytes cost an ideal client, with nothing of a repository in between."""

from __future__ import annotations

import hashlib
import io
import tempfile
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import urllib3

from bench.worlds import World
from hub.services import s3_settings
from hub.settings import Settings
from storage import S3Store


def put_floor(settings: Settings, world: World) -> str:
    """Put all objects of the tip into the S3 server, raw and in one piece; a link to it."""
    with closing(S3Store(s3_settings(settings))) as store:
        key = f"bench/{world.name}"
        store.put(key, io.BytesIO(b"".join(world.tree.values())))
        link = store.presign_get(key, expires=timedelta(hours=1))
        assert link is not None
        return link.url


def floor(url: str, world: World, folder: Path) -> None:
    """One GET of all objects, hashed one by one; the tree is written and what came is kept."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        got = urllib3.request("GET", url).data
        (Path(scratch) / "kept").write_bytes(got)
        view, at = memoryview(got), 0
        for path, content in world.tree.items():
            piece = view[at : at + len(content)]
            at += len(content)
            hashlib.sha256(piece).hexdigest()
            target = Path(scratch) / path
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(piece)
