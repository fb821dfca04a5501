"""What the client's connections bear: servers that close, break off, refuse early, or speak TLS."""

from __future__ import annotations

import datetime as dt
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from hub.client.connections import Connections
from hub.client.errors import NoAnswer, Unreachable

Play = Callable[[socket.socket], None]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Listener:
    """Plays one part a connection, in their order, each in the one thread; `ended` is set when a part is done."""

    def __init__(self, *parts: Play, context: ssl.SSLContext | None = None) -> None:
        self.ended = [threading.Event() for _ in parts]
        self._parts = parts
        self._context = context
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._play)
        self._thread.start()

    def _play(self) -> None:
        for part, ended in zip(self._parts, self.ended, strict=True):
            connection, _ = self._socket.accept()
            try:
                if self._context is not None:
                    connection = self._context.wrap_socket(connection, server_side=True)
                part(connection)
            except ssl.SSLError:
                pass  # the client has refused us
            finally:
                connection.close()
                ended.set()

    def close(self) -> None:
        self._thread.join()
        self._socket.close()


@pytest.fixture
def listen() -> Iterator[Callable[..., Listener]]:
    with ExitStack() as stack:

        def start(*parts: Play, context: ssl.SSLContext | None = None) -> Listener:
            listener = Listener(*parts, context=context)
            stack.callback(listener.close)
            return listener

        yield start


@pytest.fixture
def connections() -> Iterator[Connections]:
    made = Connections(connect_seconds=5)
    yield made
    made.close()


def answers(*replies: bytes) -> Play:
    """Take a request without a body before each of the replies."""

    def play(connection: socket.socket) -> None:
        for reply in replies:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += connection.recv(1)
            connection.sendall(reply)

    return play


def ask(connections: Connections, url: str, body: bytes | None = None) -> tuple[int, bytes]:
    with connections.ask("POST" if body else "GET", url, {}, body, 5) as answer:
        return answer.status, b"".join(answer.stream(1024))


def test_requests_follow_each_other_over_one_connection(
    listen: Callable[..., Listener], connections: Connections
) -> None:
    listener = listen(answers(OK, OK, b"HTTP/1.1 204 No Content\r\n\r\n", OK))
    told = [ask(connections, f"http://127.0.0.1:{listener.port}/") for _ in range(4)]
    assert told == [(200, b"ok"), (200, b"ok"), (204, b""), (200, b"ok")]


def test_connection_that_the_server_has_closed_is_not_used_again(
    listen: Callable[..., Listener], connections: Connections
) -> None:
    listener = listen(answers(OK), answers(OK))
    url = f"http://127.0.0.1:{listener.port}/"
    ask(connections, url)
    assert listener.ended[0].wait(5)
    assert ask(connections, url) == (200, b"ok")


def test_connection_whose_answer_was_left_unread_is_not_used_again(
    listen: Callable[..., Listener], connections: Connections
) -> None:
    listener = listen(answers(OK), answers(OK))
    url = f"http://127.0.0.1:{listener.port}/"
    with connections.ask("GET", url, {}, None, 5) as answer:
        assert answer.status == 200
    assert ask(connections, url) == (200, b"ok")


def test_refusal_before_the_body_has_come_whole_is_read(
    listen: Callable[..., Listener], connections: Connections
) -> None:
    refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig"
    listener = listen(answers(refusal))
    assert ask(connections, f"http://127.0.0.1:{listener.port}/", bytes(50_000_000)) == (413, b"big")


@pytest.mark.parametrize(
    ("reply", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n", b"abc"),
        (b"HTTP/1.0 200 OK\r\n\r\nall there is", b"all there is"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, b"ok"),
    ],
)
def test_body_of_each_form_is_read(
    listen: Callable[..., Listener], connections: Connections, reply: bytes, body: bytes
) -> None:
    listener = listen(answers(reply))
    assert ask(connections, f"http://127.0.0.1:{listener.port}/") == (200, body)


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfour",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfour",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n0\r\n\r\n",
    ],
)
def test_answer_that_does_not_come_whole_is_a_broken_connection(
    listen: Callable[..., Listener], connections: Connections, reply: bytes
) -> None:
    listener = listen(answers(reply))
    with pytest.raises(NoAnswer, match="broke"):
        ask(connections, f"http://127.0.0.1:{listener.port}/")


def test_silent_server_is_not_waited_for_longer_than_asked(
    listen: Callable[..., Listener], connections: Connections
) -> None:
    over = threading.Event()
    listener = listen(lambda _: over.wait(5) and None)
    try:
        with (
            pytest.raises(NoAnswer, match="in time"),
            connections.ask("GET", f"http://127.0.0.1:{listener.port}/", {}, None, 0.05),
        ):
            pass
    finally:
        over.set()


@pytest.mark.parametrize("host", ["nowhere.invalid", "x" * 70])
def test_unknown_name_is_said_to_be_that(connections: Connections, host: str) -> None:
    with pytest.raises(NoAnswer, match="the name is not known"):
        ask(connections, f"http://{host}/")


def server_side(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """TLS for 127.0.0.1, and the certificate that a client must trust for it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "hub")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    secret = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(secret)
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(encoding))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    return context, folder / "certificate.pem"


def test_trusted_certificate_is_accepted(
    listen: Callable[..., Listener], connections: Connections, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, certificate = server_side(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    listener = listen(answers(OK, OK), context=context)
    url = f"https://127.0.0.1:{listener.port}/"
    assert [ask(connections, url), ask(connections, url)] == [(200, b"ok")] * 2


def test_certificate_of_somebody_else_is_refused(
    listen: Callable[..., Listener], connections: Connections, tmp_path: Path
) -> None:
    context, _ = server_side(tmp_path)
    listener = listen(answers(), context=context)
    with pytest.raises(Unreachable, match="certificate") as caught:
        ask(connections, f"https://127.0.0.1:{listener.port}/")
    assert not isinstance(caught.value, NoAnswer)
