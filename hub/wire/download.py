"""The tree of a commit as a file to download."""

from __future__ import annotations

import re
from urllib.parse import quote

from flask import Blueprint, Response

from hub.archive import watched
from hub.auth import Right
from hub.errors import Missing
from hub.export import FILES, FORMATS, read_files
from hub.models import Snapshot
from hub.records import EMPTY_OBJECT_ID, decode_manifest
from hub.refs import find_commit
from hub.wire.context import hub, opened
from hub.wire.pull import locate_when_indexed
from hub.wire.stream import begun

wire = Blueprint("download", __name__, url_prefix="/<owner>/<slug>")


@wire.get("/archive/<path:name>")
def archive(owner: str, slug: str, name: str) -> Response:
    """The files of the commit that a branch, tag or id names, in one tar or zip file."""
    repository = opened(owner, slug, Right.READ)
    ending = next((item for item in FORMATS if name.endswith(item)), None)
    if ending is None:
        raise Missing(f"There is no such archive; end its name with {', '.join(FORMATS)}.")
    ref = name.removesuffix(ending)
    services, repository_id = hub().services, repository.repository_id
    with services.sessions() as session:
        commit = find_commit(session, repository_id, ref)
        snapshot = session.get_one(Snapshot, (repository_id, commit.snapshot_id))
        manifest = decode_manifest(snapshot.manifest)
        # Asked for before the first byte goes out: what is missing must be an answer, not a file cut short.
        wanted = sorted(set(manifest.values()) - {EMPTY_OBJECT_ID})
        for start in range(0, len(wanted), FILES):
            locate_when_indexed(session, repository_id, wanted[start : start + FILES])
    media_type, make = FORMATS[ending]
    folder = f"{slug}-{re.sub(r'[^0-9A-Za-z._-]+', '-', ref)}"
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(folder + ending)}",
        "ETag": f'"{commit.commit_id}{ending}"',
    }
    files = read_files(services, repository_id, manifest)
    chunks = watched(services, repository_id, make(files, folder, commit.committed_at))
    return Response(begun(chunks), 200, headers, content_type=media_type)
