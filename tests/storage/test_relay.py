"""A body that goes from the store's connection to another one, and what can happen to it on the way."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from unittest import mock

import pytest

from storage import Body, FaultyStore, MemoryStore, S3Settings, S3Store, Store, Unavailable
from storage.faults import Fault
from storage.relay import Tap
from storage.s3 import PART_BYTES
from tests.storage.conftest import MOTO

CONTENT = random.Random(7).randbytes(PART_BYTES + 3_000_000)  # in parts, which the store answers without a checksum


def all_of(connection: socket.socket) -> bytes:
    """What comes until the other end is closed."""
    return b"".join(iter(lambda: connection.recv(1 << 20), b""))


@contextlib.contextmanager
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a TCP connection: one to send to, and one that receives."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        receiver = socket.create_connection(listener.getsockname(), timeout=30)
        sender, _ = listener.accept()
    with closing(sender), closing(receiver):
        yield sender, receiver


def sent(body: Body, *, read_before: int = 0) -> bytes:
    """What arrives of a body whose first bytes are read and whose rest is sent."""
    with connected() as (sender, receiver), ThreadPoolExecutor(1) as pool:
        arriving = pool.submit(all_of, receiver)
        with closing(sender), body:
            first = body.read(read_before) if read_before else b""
            body.send_to(sender)
        return first + arriving.result()


class TestAnyStore:
    @pytest.mark.parametrize("read_before", [0, 1, 64 * 1024])
    def test_rest_of_a_body_arrives(self, store: Store, read_before: int) -> None:
        store.put("k", CONTENT[:300_000])
        assert sent(store.get("k"), read_before=read_before) == CONTENT[:300_000]

    def test_range_ends_where_it_ends(self, store: Store) -> None:
        store.put("k", CONTENT[:300_000])
        assert sent(store.open_range("k", 12_345, 234_567)) == CONTENT[12_345:][:234_567]

    def test_small_body_that_was_read_to_its_end_has_no_rest(self, store: Store) -> None:
        store.put("k", b"small")
        assert sent(store.get("k"), read_before=64 * 1024) == b"small"

    def test_store_answers_again_afterwards(self, store: Store) -> None:
        store.put("k", CONTENT[:300_000])
        for _ in range(3):
            assert len(sent(store.open_range("k", 0, 100_000))) == 100_000


def test_body_of_a_store_that_breaks_off_is_unavailable() -> None:
    store = FaultyStore(MemoryStore(), script=[("get", Fault.BROKEN_OFF)])
    store.put("k", CONTENT)
    with pytest.raises(Unavailable, match="broke off"):
        sent(store.get("k"))


@pytest.mark.integration
class TestPlainStore:
    """Where the bytes do not come into this process."""

    def test_answer_over_a_plain_socket_is_a_tap(self, s3_store: Store) -> None:
        s3_store.put("k", CONTENT)
        with s3_store.get("k") as body, mock.patch.object(body, "read", side_effect=AssertionError):
            assert isinstance(body._source, Tap)
            assert sent(body) == CONTENT

    def test_receiver_with_a_time_out_gets_the_same(self, s3_store: Store) -> None:
        s3_store.put("k", CONTENT)
        with connected() as (sender, receiver), ThreadPoolExecutor(1) as pool, s3_store.get("k") as body:
            arriving = pool.submit(all_of, receiver)
            sender.settimeout(30)
            with closing(sender):
                body.send_to(sender)
            assert arriving.result() == CONTENT

    def test_receiver_that_goes_away_is_an_error_of_the_receiver(self, s3_store: Store) -> None:
        s3_store.put("k", CONTENT)
        with connected() as (sender, receiver), s3_store.get("k") as body:
            receiver.close()
            with pytest.raises(ConnectionError):
                body.send_to(sender)

    def test_receiver_that_does_not_read_is_waited_for_no_longer_than_it_was_given(self, s3_store: Store) -> None:
        s3_store.put("k", CONTENT)
        with connected() as (sender, _), s3_store.get("k") as body:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 200_000))
            with pytest.raises(BlockingIOError):
                body.send_to(sender)

    def test_slow_receiver_gets_all(self, s3_store: Store) -> None:
        s3_store.put("k", CONTENT)
        size = 500_000
        with (
            connected() as (sender, receiver),
            ThreadPoolExecutor(1) as pool,
            s3_store.open_range("k", 0, size) as body,
        ):
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 30, 0))
            sending = pool.submit(body.send_to, sender)
            got = bytearray()
            while len(got) < size:
                got += receiver.recv(3_000)
            sending.result()
            assert got == CONTENT[:size]


@contextlib.contextmanager
def answering(head: bytes, pieces: list[bytes], done: threading.Event | None = None) -> Iterator[S3Store]:
    """A store whose server answers one request with `head` and `pieces`, and then closes, once `done` is set."""

    def serve() -> None:
        with closing(listener.accept()[0]) as connection:
            while b"\r\n\r\n" not in connection.recv(65536, socket.MSG_PEEK):
                pass
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nETag: x\r\n" + head + b"\r\n\r\n")
            for piece in pieces:
                connection.sendall(piece)
            if done is not None:
                done.wait(30)

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        settings: S3Settings = replace(
            MOTO, endpoint_url=f"http://127.0.0.1:{listener.getsockname()[1]}", read_seconds=0.2, attempts_max=1
        )
        serving = pool.submit(serve)
        with closing(S3Store(settings)) as store:
            yield store
        if done is not None:
            done.set()
        serving.result()


def test_store_that_breaks_off_in_the_middle_is_unavailable() -> None:
    broken = answering(b"Content-Length: 1000000", [b"x" * 400_000])
    with broken as store, pytest.raises(Unavailable, match="broke off 600000 bytes"):
        sent(store.get("k"))


def test_store_that_falls_silent_is_unavailable() -> None:
    silent = answering(b"Content-Length: 1000000", [b"x" * 400_000], threading.Event())
    with silent as store, pytest.raises(Unavailable, match="did not answer"):
        sent(store.get("k"))


def test_bytes_that_came_with_the_head_are_not_lost() -> None:
    with answering(b"Content-Length: 100000\r\n\r\n" + CONTENT[:99_996], []) as store:
        assert sent(store.get("k")) == CONTENT[:99_996] + b"\r\n\r\n"


def test_answer_with_a_checksum_is_compared_with_it() -> None:
    with answering(b"Content-Length: 5\r\nx-amz-checksum-crc32: AAAAAA==", [b"wrong"]) as store:
        body = store.get("k")
        assert not isinstance(body._source, Tap)
        with pytest.raises(Exception, match="checksum"):
            sent(body)
