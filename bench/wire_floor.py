"""The floor: what the same bytes cost an ideal client, with nothing of a repository in between."""

from __future__ import annotations

import hashlib
import io
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

import urllib3

from bench.worlds import World
from hub.embedded.ports import LOOPBACK, Ports
from hub.services import s3_settings
from hub.settings import Settings
from storage import S3Store

NGINX = """
daemon on; master_process off; pid {home}/pid; error_log {home}/log;
events {{ }}
http {{
    access_log off; sendfile on;
    client_body_temp_path {home}/body; proxy_temp_path {home}/proxy; fastcgi_temp_path {home}/fastcgi;
    uwsgi_temp_path {home}/uwsgi; scgi_temp_path {home}/scgi;
    server {{ listen {address}; root {home}/files; }}
}}
"""


def put_floor(settings: Settings, world: World) -> str:
    """Put all objects of the history into the S3 server, raw and in one piece; a link to it."""
    with closing(S3Store(s3_settings(settings))) as store:
        key = f"bench/{world.name}"
        store.put(key, io.BytesIO(b"".join(world.objects.values())))
        link = store.presign_get(key, expires=timedelta(hours=1))
        assert link is not None
        return link.url


def floor(url: str, world: World, folder: Path) -> None:
    """One GET of all objects, hashed one by one; the tree is written and what came is kept."""
    with urllib3.PoolManager() as pool:  # one of its own: a forked client must not share a connection
        got = pool.request("GET", url).data
    (folder / "kept").write_bytes(got)
    view, at = memoryview(got), 0
    pieces: dict[str, memoryview] = {}
    for object_id, content in world.objects.items():
        pieces[object_id] = view[at : at + len(content)]
        at += len(content)
        assert hashlib.sha256(pieces[object_id]).hexdigest() == object_id
    for path, object_id in world.commits[-1].snapshot["manifest"].items():
        target = folder / path
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(pieces[object_id])


@contextmanager
def nginx(home: Path) -> Iterator[tuple[Path, str] | None]:
    """A directory, and the address at which nginx serves its files; None where there is no nginx."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        yield None
        return
    (home / "files").mkdir(parents=True)
    with closing(Ports()) as ports:
        address = f"{LOOPBACK}:{ports.choose(1)[0]}"
    (home / "nginx.conf").write_text(NGINX.format(home=home, address=address))
    command = [program, "-e", str(home / "log"), "-c", str(home / "nginx.conf")]
    subprocess.run(command, check=True)  # it listens when this returns
    try:
        yield home / "files", f"http://{address}"
    finally:
        subprocess.run([*command, "-s", "stop"], check=True)
