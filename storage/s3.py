"""The store on S3, or on a server that speaks it.

The only module that knows boto3, and so a long one: client, requests and errors are in here.
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
import select
import threading
import zlib
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import boto3.session
import urllib3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,  # noqa: A004  (the name in botocore)
    FlexibleChecksumError,
    HTTPClientError,
    IncompleteReadError,
)
from botocore.response import StreamingBody

from storage.body import CHUNK_BYTES, Body, Reader
from storage.errors import AccessDenied, AlreadyExists, DigestMismatch, NotFound, OutOfRange, StorageError, Unavailable
from storage.keys import check_key, check_prefix
from storage.prefixed import Prefixed
from storage.store import OpenUpload, Part, Stat, Store, Upload, check_range, read_up_to

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client
    from types_boto3_s3.type_defs import CompletedPartTypeDef, GetObjectOutputTypeDef

PART_BYTES = 8 * 1024 * 1024
"""Larger bodies go up in parts of this size, one in memory at a time; S3 takes 10,000 of at least 5 MiB."""
COPY_BYTES = 1024**3
"""Larger objects are copied in parts of this size; S3 copies at most 5 GiB in one request."""
PRESIGN_MAX = timedelta(days=7)
"""The longest that a SigV4 signature may be valid."""


@dataclass(frozen=True, slots=True)
class S3Settings:
    """Where the bucket is and who asks."""

    endpoint_url: str
    public_endpoint_url: str | None
    """The endpoint as clients reach it, for presigned URLs (the host is signed); None: the same."""
    region: str
    bucket: str
    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    connect_seconds: float = 5
    read_seconds: float = 60
    """The longest wait for the next bytes of an answer."""
    attempts_max: int = 3
    """Of one request, with the client's own short back-off in between."""
    pool_size: int = 32
    """Connections kept open."""


class S3Store(Store):
    """The objects of one bucket. Close it when done."""

    def __init__(self, settings: S3Settings) -> None:
        self._settings = settings
        self._bucket = settings.bucket
        self._client = _client(settings, settings.endpoint_url)
        public = settings.public_endpoint_url
        self._signer = _client(settings, public) if public else self._client
        # An upload that announces checksums takes no part without one, and whoever has a signed URL sends none.
        self._plain = _client(settings, settings.endpoint_url, checksums="when_required")

    def close(self) -> None:
        """Close the pooled connections."""
        self._client.close()
        self._signer.close()
        self._plain.close()

    def ensure_bucket(self) -> None:
        """Make the bucket if there is none."""
        with _mapped(self._bucket):
            try:
                self._client.head_bucket(Bucket=self._bucket)
            except ClientError as error:
                if _status(error) != 404:
                    raise
                self._create_bucket()

    def _create_bucket(self) -> None:
        place: dict[str, Any] = {}
        if self._settings.region != "us-east-1":  # S3 refuses its own default as a constraint
            place = {"CreateBucketConfiguration": {"LocationConstraint": self._settings.region}}
        try:
            self._client.create_bucket(Bucket=self._bucket, **place)
        except ClientError as error:
            if _status(error) != 409:
                raise
            # Another process was quicker, or the name is somebody else's: then this answers 403.
            self._client.head_bucket(Bucket=self._bucket)

    def put(self, key: str, body: bytes | Reader, *, if_absent: bool = False, sha256: str | None = None) -> int:
        check_key(key)
        reader = io.BytesIO(body) if isinstance(body, bytes) else body
        condition: dict[str, Literal["*"]] = {"IfNoneMatch": "*"} if if_absent else {}
        first = read_up_to(reader, PART_BYTES)
        try:
            if len(first) < PART_BYTES:
                self._put_whole(key, first, sha256, condition)
                return len(first)
            return self._put_parts(key, first, reader, sha256, condition)
        except _Conflict as conflict:
            # Another conditional write, or a delete, got in between: taken only if there is an object now.
            if if_absent and self._holds(key):
                raise AlreadyExists(key) from conflict
            raise

    def _put_whole(self, key: str, content: bytes, sha256: str | None, condition: dict[str, Any]) -> None:
        digest = hashlib.sha256(content)
        _check_digest(key, digest.hexdigest(), sha256)
        with _mapped(key):
            self._client.put_object(
                Bucket=self._bucket,
                Key=key,
                Body=content,
                ContentType="application/octet-stream",
                ChecksumSHA256=b64encode(digest.digest()).decode(),
                **condition,
            )

    def _put_parts(self, key: str, first: bytes, reader: Reader, sha256: str | None, condition: dict[str, Any]) -> int:
        if condition and self._holds(key):
            raise AlreadyExists(key)  # now, rather than after all the parts
        with _mapped(key):
            upload_id = self._client.create_multipart_upload(
                Bucket=self._bucket,
                Key=key,
                ContentType="application/octet-stream",
                ChecksumAlgorithm="CRC32",
            )["UploadId"]
        try:
            parts, digest, size = self._send_parts(key, upload_id, first, reader)
            _check_digest(key, digest, sha256)
            with _mapped(key):
                self._client.complete_multipart_upload(
                    Bucket=self._bucket,
                    Key=key,
                    UploadId=upload_id,
                    MultipartUpload={"Parts": parts},
                    **condition,
                )
        except BaseException as error:
            self._abort(key, upload_id, error)
            raise
        return size

    def _send_parts(
        self, key: str, upload_id: str, first: bytes, reader: Reader
    ) -> tuple[list[CompletedPartTypeDef], str, int]:
        """Send the rest of the body; return its parts, and their SHA-256 and size together."""
        digest = hashlib.sha256()
        size = 0
        parts: list[CompletedPartTypeDef] = []
        content = first
        while content:
            digest.update(content)
            size += len(content)
            parts.append(self._send_part(key, upload_id, len(parts) + 1, content))
            content = read_up_to(reader, PART_BYTES)
        return parts, digest.hexdigest(), size

    def _send_part(self, key: str, upload_id: str, number: int, content: bytes) -> CompletedPartTypeDef:
        checksum = b64encode(zlib.crc32(content).to_bytes(4, "big")).decode()
        with _mapped(key):
            answer = self._client.upload_part(
                Bucket=self._bucket,
                Key=key,
                UploadId=upload_id,
                PartNumber=number,
                Body=content,
                ChecksumCRC32=checksum,
            )
        return {"PartNumber": number, "ETag": answer["ETag"], "ChecksumCRC32": checksum}

    def _abort(self, key: str, upload_id: str, reason: BaseException) -> None:
        try:
            self._client.abort_multipart_upload(Bucket=self._bucket, Key=key, UploadId=upload_id)
        except (BotoCoreError, ClientError) as error:
            # The reason matters more than the parts that stay behind; a bucket's lifecycle rule removes those.
            reason.add_note(f"{key}: multipart upload {upload_id} was not aborted: {error}")

    def get(self, key: str) -> Body:
        with _mapped(check_key(key)):
            answer = self._client.get_object(Bucket=self._bucket, Key=key)
        return self._opened(key, answer)

    def open_range(self, key: str, offset: int, length: int) -> Body:
        check_range(offset, length)
        with _mapped(check_key(key)):
            answer = self._client.get_object(
                Bucket=self._bucket, Key=key, Range=f"bytes={offset}-{offset + length - 1}"
            )
        body = self._opened(key, answer)
        if answer["ResponseMetadata"]["HTTPStatusCode"] == 206 and body.size == length:
            return body
        body.close()
        if answer["ResponseMetadata"]["HTTPStatusCode"] != 206:
            raise StorageError(key, "the store ignored the range")
        raise OutOfRange(key)

    def _opened(self, key: str, answer: GetObjectOutputTypeDef) -> Body:
        stream = _Stream(key, answer["Body"])
        # What botocore would compare with a checksum must come by it: then it is another class.
        if self._settings.endpoint_url.startswith("http:") and type(answer["Body"]) is StreamingBody:
            stream = _PlainStream(key, answer["Body"], self._settings.read_seconds)
        return Body(key, stream, answer["ContentLength"], answer["ETag"].strip('"'))

    def head(self, key: str) -> Stat:
        with _mapped(check_key(key)):
            try:
                answer = self._client.head_object(Bucket=self._bucket, Key=key)
            except ClientError as error:
                if _status(error) == 404:
                    # An answer to HEAD has no body to tell a missing key from a missing bucket.
                    self._client.head_bucket(Bucket=self._bucket)
                    raise NotFound(key) from error
                raise
        return _stat(key, answer["ContentLength"], answer["ETag"], answer["LastModified"])

    def _holds(self, key: str) -> bool:
        try:
            self.head(key)
        except NotFound:
            return False
        return True

    def delete(self, key: str) -> None:
        with _mapped(check_key(key)):
            self._client.delete_object(Bucket=self._bucket, Key=key)

    def list(self, prefix: str = "") -> Iterator[Stat]:
        return self._pages(check_prefix(prefix))

    def _pages(self, prefix: str) -> Iterator[Stat]:
        # By continuation token: SeaweedFS' StartAfter steps over the folder of the key it is given.
        paginator = self._client.get_paginator("list_objects_v2")
        pages = iter(paginator.paginate(Bucket=self._bucket, Prefix=prefix))
        while True:
            with _mapped(prefix):
                page = next(pages, None)
            if page is None:
                return
            for found in page.get("Contents", ()):
                key = check_key(found["Key"])
                yield _stat(key, found["Size"], found["ETag"], found["LastModified"])

    def presign_get(self, key: str, *, expires: timedelta) -> Upload:
        return self._presign("GET", "get_object", {"Key": check_key(key)}, expires)

    def presign_put(self, key: str, *, expires: timedelta) -> Upload:
        return self._presign("PUT", "put_object", {"Key": check_key(key)}, expires)

    def presign_part(self, key: str, upload_id: str, number: int, *, expires: timedelta) -> Upload:
        named: dict[str, str | int] = {"Key": check_key(key), "UploadId": upload_id, "PartNumber": number}
        return self._presign("PUT", "upload_part", named, expires)

    def _presign(
        self,
        method: str,
        operation: Literal["get_object", "put_object", "upload_part"],
        named: dict[str, str | int],
        expires: timedelta,
    ) -> Upload:
        if not timedelta(seconds=1) <= expires <= PRESIGN_MAX:
            raise ValueError("expires must be between 1 second and 7 days")
        seconds = int(expires.total_seconds())
        expires_at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=seconds)
        # Only what names the target: each further parameter becomes a signed header that the client would have to send.
        url = self._signer.generate_presigned_url(
            operation, Params={"Bucket": self._bucket, **named}, ExpiresIn=seconds
        )
        return Upload(method=method, url=url, headers={}, expires_at=expires_at)

    def copy(self, source: str, key: str, *, etag: str) -> Stat:
        size = self.head(source).size
        wanted: dict[str, Any] = {
            "CopySource": {"Bucket": self._bucket, "Key": check_key(source)},
            "CopySourceIfMatch": f'"{etag}"',
        }
        with _mapped(check_key(key)):
            try:
                if size <= COPY_BYTES:
                    self._client.copy_object(Bucket=self._bucket, Key=key, **wanted)
                else:
                    self._copy_parts(key, size, wanted)
            except ClientError as error:
                if _status(error) in {404, 412}:
                    raise NotFound(source, "There is no such version of this object.") from error
                raise
        return self.head(key)

    def _copy_parts(self, key: str, size: int, wanted: dict[str, Any]) -> None:
        target: dict[str, Any] = {"Bucket": self._bucket, "Key": key, "UploadId": self.create_upload(key)}
        try:
            parts: list[CompletedPartTypeDef] = []
            for number, start in enumerate(range(0, size, COPY_BYTES), start=1):
                within = f"bytes={start}-{min(start + COPY_BYTES, size) - 1}"
                answer = self._plain.upload_part_copy(**target, PartNumber=number, CopySourceRange=within, **wanted)
                parts.append({"PartNumber": number, "ETag": answer["CopyPartResult"]["ETag"]})
            self._plain.complete_multipart_upload(**target, MultipartUpload={"Parts": parts})
        except BaseException as error:
            self._abort(key, target["UploadId"], error)
            raise

    def create_upload(self, key: str) -> str:
        with _mapped(check_key(key)):
            return self._plain.create_multipart_upload(
                Bucket=self._bucket, Key=key, ContentType="application/octet-stream"
            )["UploadId"]

    def put_part(self, key: str, upload_id: str, number: int, body: bytes) -> Part:
        with _mapped_upload(check_key(key)):
            answer = self._plain.upload_part(
                Bucket=self._bucket, Key=key, UploadId=upload_id, PartNumber=number, Body=body
            )
        return Part(number, len(body), answer["ETag"].strip('"'))

    def list_parts(self, key: str, upload_id: str) -> Iterator[Part]:
        return self._part_pages(check_key(key), upload_id)

    def _part_pages(self, key: str, upload_id: str) -> Iterator[Part]:
        paginator = self._plain.get_paginator("list_parts")
        pages = iter(paginator.paginate(Bucket=self._bucket, Key=key, UploadId=upload_id))
        while True:
            with _mapped_upload(key):
                page = next(pages, None)
            if page is None:
                return
            for found in page.get("Parts", ()):
                yield Part(found["PartNumber"], found["Size"], found["ETag"].strip('"'))

    def complete_upload(self, key: str, upload_id: str, parts: Sequence[Part]) -> Stat:
        named: list[CompletedPartTypeDef] = [{"PartNumber": part.number, "ETag": f'"{part.etag}"'} for part in parts]
        with _mapped_upload(check_key(key)):
            self._plain.complete_multipart_upload(
                Bucket=self._bucket, Key=key, UploadId=upload_id, MultipartUpload={"Parts": named}
            )
        return self.head(key)

    def abort_upload(self, key: str, upload_id: str) -> None:
        try:
            with _mapped_upload(check_key(key)):
                self._plain.abort_multipart_upload(Bucket=self._bucket, Key=key, UploadId=upload_id)
        except NotFound:
            return

    def list_uploads(self, prefix: str = "") -> Iterator[OpenUpload]:
        return self._upload_pages(check_prefix(prefix))

    def _upload_pages(self, prefix: str) -> Iterator[OpenUpload]:
        at: dict[str, Any] = {}
        while True:
            with _mapped(prefix):
                page = self._plain.list_multipart_uploads(Bucket=self._bucket, Prefix=prefix, **at)
            for found in page.get("Uploads", ()):
                begun = found["Initiated"].replace(microsecond=0)
                yield OpenUpload(check_key(found["Key"]), found["UploadId"], begun)
            # SeaweedFS says «truncated» without a marker to go on from.
            if not page.get("IsTruncated") or not page.get("NextKeyMarker"):
                return
            at = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page.get("NextUploadIdMarker", "")}


def open_store(settings: S3Settings, *, role: str) -> Store:
    """Return the part of the bucket for `role`: "archive" (the truth) or "cache" (may be lost)."""
    return Prefixed(S3Store(settings), f"{role}/")


def _client(
    settings: S3Settings,
    endpoint_url: str,
    checksums: Literal["when_supported", "when_required"] = "when_supported",
) -> S3Client:
    config = Config(
        signature_version="s3v4",
        s3={"addressing_style": "path"},
        connect_timeout=settings.connect_seconds,
        read_timeout=settings.read_seconds,
        retries={"mode": "standard", "total_max_attempts": settings.attempts_max},
        max_pool_connections=settings.pool_size,
        request_checksum_calculation=checksums,
    )
    with _session_lock:  # clients may be shared by threads, the making of clients may not
        return _session().client(
            "s3",
            endpoint_url=endpoint_url,
            region_name=settings.region,
            aws_access_key_id=settings.access_key,
            aws_secret_access_key=settings.secret_key,
            config=config,
        )


_session_lock = threading.Lock()


@functools.cache
def _session() -> boto3.session.Session:
    """One for all clients: it keeps the parsed description of S3, which is slow to read."""
    return boto3.session.Session()


def _check_digest(key: str, found: str, expected: str | None) -> None:
    if expected is not None and found != expected:
        raise DigestMismatch(key)


class _Stream:
    """The body of an answer, with our errors."""

    def __init__(self, key: str, body: StreamingBody) -> None:
        self._key = key
        self._body = body

    def read(self, size: int, /) -> bytes:
        with _mapped(self._key):
            return self._body.read(size)

    def close(self) -> None:
        self._body.close()


class _PlainStream(_Stream):
    """The body of an answer that comes over a plain socket: a Tap."""

    def __init__(self, key: str, body: StreamingBody, read_seconds: float) -> None:
        super().__init__(key, body)
        self._answer: urllib3.HTTPResponse = (  # botocore has no other way to the socket
            body._raw_stream  # type: ignore[attr-defined]  # noqa: SLF001
        )
        self._read_seconds = read_seconds

    def read_ahead(self) -> bytes:
        try:
            return self._answer.read1(CHUNK_BYTES)
        except urllib3.exceptions.HTTPError as error:
            raise self._unavailable(error) from error

    def fill(self, pipe: int, size: int) -> int:
        connection = self._answer.fileno()
        while True:
            try:
                return os.splice(connection, pipe, size)
            except BlockingIOError as error:
                if not _is_readable(connection, self._read_seconds):
                    raise self._unavailable(error) from error
            except OSError as error:
                raise self._unavailable(error) from error

    def _unavailable(self, error: Exception) -> Unavailable:
        return Unavailable(self._key, f"the store did not answer ({type(error).__name__})")


def _is_readable(connection: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


class _Conflict(Unavailable):
    """Another write or delete of the key was under way."""


@contextmanager
def _mapped(key: str) -> Iterator[None]:
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        _raise(key, error)


@contextmanager
def _mapped_upload(key: str) -> Iterator[None]:
    """As `_mapped`, for one unfinished upload: that it has ended is then an answer, not trouble."""
    try:
        with _mapped(key):
            yield
    except Unavailable as error:
        if isinstance(error.__cause__, ClientError) and error.__cause__.response["Error"].get("Code") == "NoSuchUpload":
            raise NotFound(key, "There is no such unfinished upload.") from error
        raise


def _raise(key: str, error: BotoCoreError | ClientError) -> NoReturn:
    """Raise the error of ours that `error` means. What is not known is a plain StorageError, never «absent»."""
    if isinstance(error, FlexibleChecksumError):
        raise DigestMismatch(key, "the bytes that the store sent differ from its own checksum") from error
    if isinstance(error, (ConnectionError, HTTPClientError, IncompleteReadError)):
        raise Unavailable(key, f"the store did not answer ({type(error).__name__})") from error
    if not isinstance(error, ClientError):
        raise StorageError(key, f"the request could not be made ({type(error).__name__})") from error
    code, status = error.response["Error"].get("Code", ""), _status(error)
    if code == "NoSuchKey":
        raise NotFound(key) from error
    if status == 409:
        raise _Conflict(key) from error
    if status == 412:
        raise AlreadyExists(key) from error
    if status == 416:
        raise OutOfRange(key) from error
    if code in {"BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch"}:
        raise DigestMismatch(key, "the bytes that the store received differ from those sent") from error
    # NoSuchUpload: the answer to a completion got lost, and the repeated request finds no upload any more.
    if status >= 500 or status == 429 or code in {"RequestTimeout", "NoSuchUpload"}:
        raise Unavailable(key, f"the store answered {code}", retry_after=_retry_after(error)) from error
    # What is not found here is the bucket: see above for keys and uploads.
    refusal = AccessDenied if status in {401, 403, 404} else StorageError
    raise refusal(key, f"the store refused: {code}") from error


def _status(error: ClientError) -> int:
    return error.response["ResponseMetadata"]["HTTPStatusCode"]


def _retry_after(error: ClientError) -> float | None:
    text = error.response["ResponseMetadata"].get("HTTPHeaders", {}).get("retry-after", "")
    return float(text) if text.isdecimal() else None


def _stat(key: str, size: int, etag: str, modified_at: datetime) -> Stat:
    # Listings may have fractions of the second that HEAD has not.
    return Stat(key=key, size=size, etag=etag.strip('"'), modified_at=modified_at.replace(microsecond=0))
