"""A pack through the web process, whose bytes go from the store's connection to the client's."""

from __future__ import annotations

import http.client
import random
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest

from hub.keys import cache_key
from storage import Prefixed, S3Settings, S3Store
from tests.hub.world import History, World
from tests.system.serving import served
from tests.system.world import WAIT_SECONDS

pytestmark = [pytest.mark.integration, pytest.mark.system]

FILES = {"big": random.Random(5).randbytes(12_000_000)}


@dataclass(frozen=True)
class Offer:
    """A pack that a web process offers, and its bytes as they lie in the store."""

    port: int
    path: str
    content: bytes

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_SECONDS)


@pytest.fixture
def offer(
    database_url: str, s3_settings: S3Settings, new_world: Callable[..., World], history: History
) -> Iterator[Offer]:
    """A web process with one thread, which hands out URLs of its own."""
    with closing(S3Store(s3_settings)) as store:
        archive, cache = Prefixed(store, "archive/"), Prefixed(store, "cache/")
        world = new_world(archive=archive, cache=cache, presign=False)
        tip = history.commit(FILES)
        assert world.push_mpack(history, tip).status_code == 200
        world.drain()
        said = world.post("/fetch/mpack", {}).get_json()
        content = cache.get_range(cache_key(world.repository_id, said["mpack_id"]), 0, said["size"])
    environ = {
        "S3_ENDPOINT_URL": s3_settings.endpoint_url, "S3_ACCESS_KEY_ID": s3_settings.access_key,
        "S3_SECRET_ACCESS_KEY": s3_settings.secret_key, "S3_BUCKET": s3_settings.bucket,
    }  # fmt: skip
    with served(database_url, "--threads", "1", "--idle-timeout", "1", **environ) as port:
        yield Offer(port, urlsplit(said["url"]).path, content)


def test_pack_and_ranges_of_it_come_over_one_connection(offer: Offer) -> None:
    end = len(offer.content) - 1
    asked = [("", 0, end), ("bytes=3000000-", 3_000_000, end), ("bytes=1-1", 1, 1), ("bytes=5-8388612", 5, 8_388_612)]
    with closing(offer.connect()) as connection:
        for given, first, last in asked:
            connection.request("GET", offer.path, headers={"Range": given} if given else {})
            answer = connection.getresponse()
            assert answer.status == (206 if given else 200)
            assert answer.headers["Content-Length"] == str(last + 1 - first)
            assert answer.read() == offer.content[first : last + 1]


def test_head_has_the_length_and_no_body(offer: Offer) -> None:
    with closing(offer.connect()) as connection:
        connection.request("HEAD", offer.path)
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Content-Length"]) == (200, str(len(offer.content)))
        assert answer.read() == b""
        connection.request("GET", offer.path)
        assert connection.getresponse().read() == offer.content


def test_reader_that_stops_holds_no_thread_longer_than_the_idle_time_out(offer: Offer) -> None:
    stopped = socket.create_connection(("127.0.0.1", offer.port), timeout=WAIT_SECONDS)
    stopped.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    stopped.sendall(f"GET {offer.path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    with closing(stopped), closing(offer.connect()) as connection:
        assert stopped.recv(100, socket.MSG_PEEK)  # its answer has begun, and has the only thread
        connection.request("GET", "/health")
        assert connection.getresponse().status == 200
        got = 0
        while chunk := stopped.recv(1 << 20):
            got += len(chunk)
        assert got < len(offer.content)


def test_reader_that_goes_away_holds_nothing(offer: Offer) -> None:
    gone = socket.create_connection(("127.0.0.1", offer.port), timeout=WAIT_SECONDS)
    gone.sendall(f"GET {offer.path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert gone.recv(100)
    gone.close()
    with closing(offer.connect()) as connection:
        connection.request("GET", offer.path)
        assert connection.getresponse().read() == offer.content
