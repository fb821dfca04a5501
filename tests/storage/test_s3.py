"""S3 when it misbehaves, and signatures as the real server sees them."""

from __future__ import annotations

import io
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from storage import (
    AccessDenied,
    AlreadyExists,
    DigestMismatch,
    InvalidKey,
    NotFound,
    S3Settings,
    S3Store,
    StorageError,
    Unavailable,
)
from storage.s3 import PART_BYTES

MINUTE = timedelta(minutes=1)
SETTINGS = S3Settings("http://127.0.0.1:1", None, "us-east-1", "packhouse", "access", "very-secret")
DESCRIBED = {"ETag": '"e"', "Last-Modified": "Fri, 02 Jan 2026 12:00:00 GMT"}


@dataclass
class Answer:
    """What the scripted server says to one request."""

    status: int = 200
    code: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    length: int | None = None
    """The announced length, if it is not that of the body."""


class Server(ThreadingHTTPServer):
    """Answers by a script, in order, and remembers what was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script: list[Answer] = []
        self.asked: list[str] = []
        self.released = threading.Event()
        self.silent = False


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # boto3 expects «100 Continue»
    server: Server

    def answer(self) -> None:
        self.close_connection = True
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append(f"{self.command} {urlsplit(self.path).path}")
        if self.server.silent:
            self.server.released.wait(timeout=30)
            return
        answer = self.server.script.pop(0)
        body = answer.body
        if answer.code:
            body = f"<Error><Code>{answer.code}</Code><Message>scripted</Message></Error>".encode()
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if answer.length is None else answer.length))
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer  # the names of http.server

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the name of http.server)
        """Keep the output of the tests clean."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        found.released.set()
        found.shutdown()
        thread.join()


@pytest.fixture
def connect(server: Server) -> Iterator[Callable[..., S3Store]]:
    """Return a store on the scripted server, which is asked once per call unless told otherwise."""
    stores: list[S3Store] = []

    def open_one(*script: Answer, attempts_max: int = 1, read_seconds: float = 60) -> S3Store:
        server.script.extend(script)
        endpoint_url = f"http://127.0.0.1:{server.server_address[1]}"
        settings = replace(SETTINGS, endpoint_url=endpoint_url, attempts_max=attempts_max, read_seconds=read_seconds)
        stores.append(S3Store(settings))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


class TestErrors:
    def test_busy_server_is_unavailable_for_as_long_as_it_says(self, connect: Callable[..., S3Store]) -> None:
        store = connect(Answer(503, "SlowDown", {"Retry-After": "7"}))
        with pytest.raises(Unavailable) as error:
            store.get("k")
        assert error.value.retry_after == 7

    @pytest.mark.parametrize(
        ("status", "code"),
        [(500, "InternalError"), (503, "ServiceUnavailable"), (429, "TooManyRequests"), (400, "RequestTimeout")],
    )
    def test_passing_failure_is_unavailable(self, connect: Callable[..., S3Store], status: int, code: str) -> None:
        with pytest.raises(Unavailable, match=code) as error:
            connect(Answer(status, code)).delete("k")
        assert error.value.retry_after is None

    @pytest.mark.parametrize(
        ("status", "code", "kind"),
        [
            (403, "SignatureDoesNotMatch", AccessDenied),
            (401, "Unauthorized", AccessDenied),
            (404, "NoSuchBucket", AccessDenied),
            (400, "AuthorizationHeaderMalformed", StorageError),
            (418, "Teapot", StorageError),
        ],
    )
    def test_refusal_is_neither_absent_nor_passing(
        self, connect: Callable[..., S3Store], status: int, code: str, kind: type[StorageError]
    ) -> None:
        with pytest.raises(StorageError, match=code) as error:
            connect(Answer(status, code)).get("k")
        assert type(error.value) is kind

    def test_head_in_a_bucket_that_is_gone_is_not_absence(
        self, connect: Callable[..., S3Store], server: Server
    ) -> None:
        with pytest.raises(StorageError) as error:
            connect(Answer(404), Answer(404)).head("k")
        assert type(error.value) is AccessDenied
        assert server.asked == ["HEAD /packhouse/k", "HEAD /packhouse"]

    def test_head_in_a_bucket_that_is_there_is_absence(self, connect: Callable[..., S3Store]) -> None:
        with pytest.raises(NotFound):
            connect(Answer(404), Answer(200)).head("k")

    def test_head_without_the_right_is_not_absence(self, connect: Callable[..., S3Store]) -> None:
        with pytest.raises(StorageError) as error:
            connect(Answer(403)).head("k")
        assert type(error.value) is AccessDenied

    def test_conflict_with_a_write_that_succeeded_means_taken(self, connect: Callable[..., S3Store]) -> None:
        store = connect(Answer(409, "ConditionalRequestConflict"), Answer(200, headers=DESCRIBED))
        with pytest.raises(AlreadyExists):
            store.put("k", b"x", if_absent=True)

    def test_conflict_that_left_nothing_is_unavailable(self, connect: Callable[..., S3Store]) -> None:
        store = connect(Answer(409, "ConditionalRequestConflict"), Answer(404), Answer(200))
        with pytest.raises(Unavailable):
            store.put("k", b"x", if_absent=True)

    def test_server_that_received_other_bytes_says_so(self, connect: Callable[..., S3Store]) -> None:
        with pytest.raises(DigestMismatch):
            connect(Answer(400, "BadDigest")).put("k", b"x")

    def test_bytes_that_differ_from_the_store_s_checksum_are_refused(self, connect: Callable[..., S3Store]) -> None:
        headers = DESCRIBED | {"x-amz-checksum-crc32": "AAAAAA=="}
        with (
            connect(Answer(headers=headers, body=b"rotten")).get("k") as body,
            pytest.raises(DigestMismatch),
        ):
            body.read(100)

    def test_body_that_breaks_off_is_unavailable(self, connect: Callable[..., S3Store]) -> None:
        store = connect(Answer(headers=DESCRIBED, body=b"half", length=8))
        with store.get("k") as body, pytest.raises(Unavailable):
            assert b"".join(body) == b"never"

    def test_range_that_breaks_off_is_unavailable(self, connect: Callable[..., S3Store]) -> None:
        with pytest.raises(Unavailable):
            connect(Answer(206, headers=DESCRIBED, body=b"half", length=8)).get_range("k", 0, 8)

    def test_server_that_ignores_ranges_is_found_out(self, connect: Callable[..., S3Store]) -> None:
        with pytest.raises(StorageError, match="ignored the range"):
            connect(Answer(200, headers=DESCRIBED, body=b"whole")).get_range("k", 1, 5)

    def test_silent_server_is_unavailable_after_the_time_out(
        self, connect: Callable[..., S3Store], server: Server
    ) -> None:
        server.silent = True
        with pytest.raises(Unavailable, match="ReadTimeoutError"):
            connect(read_seconds=0.1).head("k")

    def test_closed_port_is_unavailable(self) -> None:
        store = S3Store(replace(SETTINGS, attempts_max=1))
        with closing(store), pytest.raises(Unavailable, match="EndpointConnectionError"):
            store.head("k")

    def test_attempts_are_bounded(
        self, connect: Callable[..., S3Store], server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        waits: list[float] = []
        monkeypatch.setattr("botocore.endpoint.time.sleep", waits.append)
        with pytest.raises(Unavailable):
            connect(*[Answer(500)] * 4, attempts_max=3).head("k")
        assert len(server.asked) == 3

    def test_foreign_key_in_the_bucket_is_named(self, connect: Callable[..., S3Store]) -> None:
        entry = "<Key>a//b</Key><Size>1</Size><ETag>e</ETag><LastModified>2026-01-02T12:00:00Z</LastModified>"
        page = f"<ListBucketResult><Contents>{entry}</Contents></ListBucketResult>".encode()
        with pytest.raises(InvalidKey, match="a//b"):
            list(connect(Answer(body=page)).list())

    def test_listing_that_fails_on_a_later_page_is_not_a_short_listing(self, connect: Callable[..., S3Store]) -> None:
        entry = "<Key>a</Key><Size>1</Size><ETag>e</ETag><LastModified>2026-01-02T12:00:00Z</LastModified>"
        page = (
            f"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>"
            f"<Contents>{entry}</Contents></ListBucketResult>"
        ).encode()
        listing = connect(Answer(body=page), Answer(503, "SlowDown")).list()
        assert next(listing).key == "a"
        with pytest.raises(Unavailable):
            next(listing)

    def test_secret_is_in_no_representation(self) -> None:
        assert "very-secret" not in repr(SETTINGS)
        assert "access" not in repr(replace(SETTINGS, access_key="access-id")).replace("access_key", "")


class TestParts:
    CREATED = Answer(body=b"<R><UploadId>u1</UploadId></R>")
    PART = Answer(headers={"ETag": '"p"'})

    def test_failed_part_aborts_the_upload(self, connect: Callable[..., S3Store], server: Server) -> None:
        store = connect(self.CREATED, self.PART, Answer(500, "InternalError"), Answer(204))
        with pytest.raises(Unavailable):
            store.put("k", bytes(PART_BYTES + 1))
        assert server.asked == ["POST /packhouse/k", "PUT /packhouse/k", "PUT /packhouse/k", "DELETE /packhouse/k"]

    def test_failed_abort_is_noted_and_does_not_hide_the_reason(self, connect: Callable[..., S3Store]) -> None:
        store = connect(self.CREATED, Answer(503, "SlowDown"), Answer(500, "InternalError"))
        with pytest.raises(Unavailable, match="SlowDown") as error:
            store.put("k", bytes(PART_BYTES))
        assert "u1 was not aborted" in error.value.__notes__[0]

    def test_taken_key_is_refused_before_any_part(self, connect: Callable[..., S3Store], server: Server) -> None:
        with pytest.raises(AlreadyExists):
            connect(Answer(headers=DESCRIBED)).put("k", bytes(PART_BYTES), if_absent=True)
        assert server.asked == ["HEAD /packhouse/k"]

    def test_completion_repeated_after_a_lost_answer_is_unavailable(self, connect: Callable[..., S3Store]) -> None:
        store = connect(self.CREATED, self.PART, Answer(404, "NoSuchUpload"), Answer(404, "NoSuchUpload"))
        with pytest.raises(Unavailable, match="NoSuchUpload"):
            store.put("k", bytes(PART_BYTES))

    @pytest.mark.parametrize("server_kind", ["moto", pytest.param("real", marks=pytest.mark.integration)])
    def test_no_unfinished_upload_stays_behind(self, server_kind: str, request: pytest.FixtureRequest) -> None:
        store: S3Store = request.getfixturevalue("moto_store" if server_kind == "moto" else "real_store")
        with pytest.raises(DigestMismatch):
            store.put("aborted", io.BytesIO(bytes(PART_BYTES + 1)), sha256="0" * 64)
        uploads = store._client.list_multipart_uploads(Bucket=store._bucket, Prefix="aborted")
        assert "Uploads" not in uploads


class TestBucket:
    def test_bucket_is_made_once(self, connect: Callable[..., S3Store], server: Server) -> None:
        store = connect(Answer(404), Answer(200), Answer(200))
        store.ensure_bucket()
        store.ensure_bucket()
        assert server.asked == ["HEAD /packhouse", "PUT /packhouse", "HEAD /packhouse"]

    def test_bucket_that_another_process_has_just_made_is_fine(self, connect: Callable[..., S3Store]) -> None:
        connect(Answer(404), Answer(409, "BucketAlreadyOwnedByYou"), Answer(200)).ensure_bucket()

    def test_bucket_of_somebody_else_is_refused(self, connect: Callable[..., S3Store]) -> None:
        with pytest.raises(StorageError, match="403"):
            connect(Answer(404), Answer(409, "BucketAlreadyExists"), Answer(403)).ensure_bucket()


class TestPresign:
    def test_only_the_host_is_signed(self) -> None:
        with closing(S3Store(SETTINGS)) as store:
            for upload in (store.presign_put("a/k", expires=MINUTE), store.presign_get("a/k", expires=MINUTE)):
                url = urlsplit(upload.url)
                query = parse_qs(url.query)
                assert url.path == "/packhouse/a/k"
                assert query["X-Amz-SignedHeaders"] == ["host"]
                assert query["X-Amz-Expires"] == ["60"]
                assert not [name for name in query if "checksum" in name.lower()]
                assert upload.headers == {}
                assert timedelta(0) < upload.expires_at - datetime.now(UTC) <= MINUTE

    def test_url_is_that_of_the_public_endpoint(self) -> None:
        settings = replace(SETTINGS, public_endpoint_url="https://packs.example.org")
        with closing(S3Store(settings)) as store:
            assert store.presign_get("k", expires=MINUTE).url.startswith("https://packs.example.org/packhouse/k?")

    @pytest.mark.parametrize("expires", [timedelta(0), timedelta(days=7, seconds=1), -MINUTE])
    def test_lifetime_that_no_signature_may_have_is_refused(self, expires: timedelta) -> None:
        with closing(S3Store(SETTINGS)) as store, pytest.raises(ValueError, match="7 days"):
            store.presign_get("k", expires=expires)


@pytest.fixture
def real_store(s3_settings: S3Settings) -> Iterator[S3Store]:
    with closing(S3Store(s3_settings)) as store:
        yield store


def send(method: str, url: str, data: bytes | None = None) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, data=data, method=method), timeout=30) as answer:
        content: bytes = answer.read()
    return content


def refused(method: str, url: str, data: bytes | None = None) -> int:
    """Return the status with which the request is refused."""
    with pytest.raises(urllib.error.HTTPError) as error:
        send(method, url, data)
    with error.value:
        return error.value.code


@pytest.mark.integration
class TestRealServer:
    def test_presigned_upload_and_download_work_with_urllib(self, real_store: S3Store) -> None:
        upload = real_store.presign_put("signed/k", expires=MINUTE)
        request = urllib.request.Request(upload.url, data=b"content", method=upload.method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 200
        assert request.get_header("Content-type") == "application/x-www-form-urlencoded"
        with real_store.get("signed/k") as body:
            assert body.read(100) == b"content"
        download = real_store.presign_get("signed/k", expires=MINUTE)
        assert send(download.method, download.url) == b"content"

    def test_expired_url_is_refused(self, real_store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
        real_store.put("expired/k", b"content")
        past = datetime.now(UTC) - 2 * MINUTE
        monkeypatch.setattr("botocore.auth.get_current_datetime", lambda: past.replace(tzinfo=None))
        assert refused("GET", real_store.presign_get("expired/k", expires=MINUTE).url) == 403
        assert refused("PUT", real_store.presign_put("expired/new", expires=MINUTE).url, b"x") == 403
        monkeypatch.undo()
        assert [stat.key for stat in real_store.list("expired/")] == ["expired/k"]

    def test_tampered_url_is_refused(self, real_store: S3Store) -> None:
        real_store.put("tampered/k", b"content")
        get = real_store.presign_get("tampered/k", expires=MINUTE).url
        put = real_store.presign_put("tampered/new", expires=MINUTE).url
        assert refused("GET", get[:-1] + ("0" if get[-1] != "0" else "1")) == 403
        assert refused("GET", get.replace("X-Amz-Expires=60", "X-Amz-Expires=600")) == 403
        assert refused("PUT", get, b"x") == 403
        assert refused("PUT", put.replace("tampered/new", "tampered/other"), b"x") == 403
        assert refused("GET", get.partition("?")[0]) == 403
        assert [stat.key for stat in real_store.list("tampered/")] == ["tampered/k"]

    def test_wrong_secret_is_refused_and_not_taken_for_absence(self, s3_settings: S3Settings) -> None:
        for wrong in (replace(s3_settings, secret_key="wrong"), replace(s3_settings, access_key="nobody")):
            with closing(S3Store(wrong)) as store:
                for call in (
                    lambda store=store: store.put("refused/k", b"x"),
                    lambda store=store: store.get("refused/k"),
                    lambda store=store: store.head("refused/k"),
                    lambda store=store: store.delete("refused/k"),
                    lambda store=store: list(store.list("refused/")),
                ):
                    with pytest.raises(StorageError) as error:
                        call()
                    assert type(error.value) is AccessDenied

    def test_missing_bucket_is_not_absence(self, s3_settings: S3Settings) -> None:
        with closing(S3Store(replace(s3_settings, bucket="no-such-bucket"))) as store:
            for call in (store.get, store.head):
                with pytest.raises(StorageError) as error:
                    call("k")
                assert type(error.value) is AccessDenied

    def test_bucket_can_be_ensured_again(self, real_store: S3Store) -> None:
        real_store.put("ensured/k", b"x")
        real_store.ensure_bucket()
        assert real_store.head("ensured/k").size == 1

    def test_listing_goes_over_many_pages(self, real_store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
        names = [f"paged/{number // 10}/{number:03}" for number in range(25)]
        for name in names:
            real_store.put(name, b"x")
        paginate = real_store._client.get_paginator

        class SmallPages:
            def __init__(self, operation: str) -> None:
                self.paginator = paginate(operation)  # type: ignore[call-overload]

            def paginate(self, **parameters: object) -> object:
                return self.paginator.paginate(PaginationConfig={"PageSize": 4}, **parameters)

        monkeypatch.setattr(real_store._client, "get_paginator", SmallPages)
        assert [stat.key for stat in real_store.list("paged/")] == sorted(names)
