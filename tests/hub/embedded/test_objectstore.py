"""The embedded S3 server: kept objects, no access without credentials."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import urllib3

from hub.embedded.objectstore import PERMIT_SECONDS, PORTS, SOCKETS, ObjectStore
from hub.embedded.ports import LOOPBACK
from hub.embedded.processes import ChildFailed
from hub.embedded.state import State
from storage import S3Store, StorageError

pytestmark = [pytest.mark.system, pytest.mark.integration]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Callable[[], ObjectStore]]:
    """Start the server of the same state directory anew at every call."""
    state = State(tmp_path / "state")
    made: list[ObjectStore] = []

    def start() -> ObjectStore:
        for store in made:
            store.stop()
        made.append(ObjectStore(state))
        made[-1].launch()
        made[-1].wait_ready()
        return made[-1]

    yield start
    for store in made:
        store.stop()
    state.close()


def test_objects_ports_and_keys_survive_a_restart(server: Callable[[], ObjectStore]) -> None:
    settings = server().settings("kept")
    with closing(S3Store(settings)) as store:
        store.ensure_bucket()
        store.put("key", b"value")
    assert server().settings("kept") == settings
    with closing(S3Store(settings)) as store:
        assert store.get_range("key", 0, 5) == b"value"


def test_nothing_is_open_without_credentials(server: Callable[[], ObjectStore]) -> None:
    objectstore = server()
    settings = objectstore.settings("private")
    with closing(S3Store(settings)) as store:
        store.ensure_bucket()
        store.put("key", b"value")
    with closing(S3Store(replace(settings, secret_key="wrong"))) as store, pytest.raises(StorageError):
        store.put("key", b"other")
    with urllib3.PoolManager() as pool:
        assert pool.request("GET", f"{settings.endpoint_url}/private/key").status == 403
        # The filer, a second door to the same bytes.
        filer = f"http://{LOOPBACK}:{objectstore.ports[PORTS.index('filer.port')]}/buckets/private/key"
        assert pool.request("GET", filer).status == 401
        assert pool.request("PUT", filer, body=b"other").status == 401


def test_write_may_take_minutes_within_the_server(server: Callable[[], ObjectStore]) -> None:
    """Its parts permit each other's writes; a busy machine must not use up the permit before the write is done."""
    objectstore = server()
    master = f"http://{LOOPBACK}:{objectstore.ports[PORTS.index('master.port')]}"
    with urllib3.PoolManager() as pool:
        permit = pool.request("GET", f"{master}/dir/assign").headers["Authorization"].rpartition(" ")[2].split(".")[1]
    expires = json.loads(base64.urlsafe_b64decode(permit + "=" * (-len(permit) % 4)))["exp"]
    assert PERMIT_SECONDS - 60 < expires - time.time() <= PERMIT_SECONDS + 1


def test_nothing_is_left_in_the_common_temporary_directory(server: Callable[[], ObjectStore]) -> None:
    objectstore = server()
    sockets = [path for port in objectstore.ports for path in SOCKETS.glob(f"seaweedfs-*{port}.sock")]
    assert sockets, "the server is expected to make some"
    objectstore.stop()
    assert [path for path in sockets if path.exists()] == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may remove anybody's files")
def test_ports_whose_sockets_are_another_users_are_avoided(
    server: Callable[[], ObjectStore], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = server()
    monkeypatch.setattr("hub.embedded.objectstore.SOCKETS", tmp_path / "common")
    (tmp_path / "common").mkdir()
    for port in first.ports:
        for part in ("s3", "master", "volume", "filer", "admin"):
            (tmp_path / f"common/seaweedfs-{part}-grpc-{port}.sock").touch()
    (tmp_path / "common").chmod(0o500)
    first.stop()
    assert not set(server().ports) & set(first.ports)
    (tmp_path / "common").chmod(0o700)


def test_state_directory_may_have_a_long_name(tmp_path: Path) -> None:
    state = State(tmp_path / ("long" * 40))
    store = ObjectStore(state)
    store.launch()
    store.wait_ready()
    store.stop()
    state.close()


def test_server_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "weed"
    program.write_text("#!/bin/sh\necho no room on the disk\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr("hub.embedded.objectstore.find_weed", lambda: program)
    state = State(tmp_path / "state")
    store = ObjectStore(state)
    store.launch()
    with pytest.raises(ChildFailed, match="no room on the disk"):
        store.wait_ready()
    store.stop()
    state.close()
