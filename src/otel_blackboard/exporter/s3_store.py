"""Bodies in a bucket of MinIO, AWS S3 or anything that speaks its protocol."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple, NoReturn
from urllib.parse import unquote, urlsplit

import certifi
import urllib3
from minio import Minio
from minio.error import InvalidResponseError, MinioException, S3Error, ServerError
from minio.helpers import MIN_PART_SIZE
from urllib3.exceptions import HTTPError, MaxRetryError, ReadTimeoutError

from otel_blackboard.exporter.bodies import (
    BodyMissing,
    BodyStoreError,
    StoredObject,
    check_key,
    check_prefix,
    check_range,
    is_key,
)

_CONNECT_TIMEOUT = 3.0
"""Seconds. With the retries below a refused connection is known at once, a host that is off after two connect timeouts,
one that hangs after one timeout."""

_CONNECTIONS = 16
"""Kept open to the host: the threads that put the packs of a flush side by side, and readers."""

_PROBE = ".check"
"""What check() writes. Begins with a dot, so no key can be it."""

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_FORM = "BLACKBOARD_S3 must be http(s)://access-key:secret-key@host:port/bucket[/prefix]"

_ADVICE = {
    "AccessDenied": "allow this access key to create, read, write, list and delete in the bucket",
    "InvalidAccessKeyId": "correct the access key in BLACKBOARD_S3",
    "SignatureDoesNotMatch": "correct the secret key in BLACKBOARD_S3 (percent-encoded where it holds / @ : or %)",
    "RequestTimeTooSkewed": "set the clock of this machine",
    "AuthorizationHeaderMalformed": "set BLACKBOARD_S3_REGION to the region of the bucket",
    "PermanentRedirect": "set BLACKBOARD_S3_REGION to the region of the bucket",
    "NoSuchBucket": "`otel-blackboard doctor` and every start of the service make it",
    "XMinioStorageFull": "give the server disk space",
}


class S3Location(NamedTuple):
    """What a URL of the settings says. Not to be logged."""

    endpoint: str
    secure: bool
    access_key: str
    secret_key: str
    bucket: str
    prefix: str
    """'' or a path that ends with '/'."""

    def __repr__(self) -> str:
        return f"S3Location({self.name})"

    @property
    def name(self) -> str:
        """The URL without its credentials."""
        scheme = "https" if self.secure else "http"
        return f"{scheme}://{self.endpoint}/{self.bucket}/{self.prefix}".rstrip("/")


def parse_s3_url(url: str) -> S3Location:
    """Splits `http(s)://access-key:secret-key@host:port/bucket[/prefix]`, credentials percent-decoded.

    Raises ValueError that says what is wrong and quotes nothing: an unencoded '/' or '@' in a secret would put a part
    of it anywhere in the URL.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(f"{_FORM}: host or port cannot be read (percent-encode / @ : and % in the keys)") from None
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"{_FORM}: the scheme is neither http nor https")
    if not host:
        raise ValueError(f"{_FORM}: the host is missing")
    if not parts.username or not parts.password:
        raise ValueError(f"{_FORM}: access key or secret key is missing")
    if parts.query or parts.fragment:
        raise ValueError(f"{_FORM}: it has a query or fragment (percent-encode ? and # in the keys)")
    bucket, _, prefix = unquote(parts.path).strip("/").partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise ValueError(f"{_FORM}: the bucket is missing or not a bucket name")
    if prefix and not is_key(prefix):
        raise ValueError(f"{_FORM}: the prefix is not made of letters, digits, '.', '_', '-' and '/'")
    host = f"[{host}]" if ":" in host else host
    return S3Location(
        endpoint=f"{host}:{port}" if port else host,
        secure=parts.scheme == "https",
        access_key=unquote(parts.username),
        secret_key=unquote(parts.password),
        bucket=bucket,
        prefix=f"{prefix}/" if prefix else "",
    )


class _NotS3(OSError):
    """Something else answered in the place of the server: a page of a proxy, say, that calls itself a success."""


class S3Store:
    """One bucket, or a prefix in it. The SDK's client is shared by all threads; its connections are pooled."""

    def __init__(self, url: str, region: str, timeout: float = 8.0) -> None:
        """Connects to nothing yet. `timeout`: seconds that the server may stay silent. Raises ValueError when the URL cannot
        be understood."""
        location = parse_s3_url(url)
        self._name = location.name
        self._bucket = location.bucket
        self._prefix = location.prefix
        self._client = Minio(
            endpoint=location.endpoint,
            access_key=location.access_key,
            secret_key=location.secret_key,
            secure=location.secure,
            region=region,
            http_client=_connection_pool(timeout),
        )

    def __repr__(self) -> str:
        return f"S3Store({self._name!r})"

    def __str__(self) -> str:
        return self._name

    def put(self, key: str, data: bytes) -> None:
        name = self._prefix + check_key(key)
        try:
            self._put(name, data)
        except (MinioException, HTTPError, OSError) as error:
            self._fail("write", key, error)

    def _put(self, name: str, data: bytes) -> None:
        # One part as large as the object: one request, atomic, and no multipart upload that a crash could leave behind.
        part_size = max(MIN_PART_SIZE, len(data))
        written = self._client.put_object(
            bucket_name=self._bucket, object_name=name, data=io.BytesIO(data), length=len(data), part_size=part_size
        )
        if not written.etag:
            raise _NotS3("success without an ETag")

    def get(self, key: str, offset: int, length: int) -> bytes:
        check_range(offset, length)
        name = self._prefix + check_key(key)
        try:
            if length == 0:  # S3 has no empty range, and to the SDK 0 means "to the end"
                self._client.stat_object(bucket_name=self._bucket, object_name=name)
                return b""
            response = self._client.get_object(bucket_name=self._bucket, object_name=name, offset=offset, length=length)
            try:
                if response.status != 206:
                    raise _NotS3(f"HTTP status {response.status} to a range")
                return response.read()
            finally:
                response.close()
                response.release_conn()
        except S3Error as error:
            if error.code in ("NoSuchKey", "NoSuchObject"):
                raise BodyMissing(key) from None
            if error.code == "InvalidRange":  # begins at or behind the end of the object
                return b""
            self._fail("read", key, error)
        except (MinioException, HTTPError, OSError) as error:
            self._fail("read", key, error)

    def delete(self, key: str) -> None:
        name = self._prefix + check_key(key)
        try:
            self._client.remove_object(bucket_name=self._bucket, object_name=name)
        except S3Error as error:
            if error.code != "NoSuchKey":
                self._fail("delete", key, error)
        except (MinioException, HTTPError, OSError) as error:
            self._fail("delete", key, error)

    def list(self, prefix: str) -> Iterator[StoredObject]:
        check_prefix(prefix)
        try:
            objects = self._client.list_objects(bucket_name=self._bucket, prefix=self._prefix + prefix, recursive=True)
            for found in objects:
                key = (found.object_name or "").removeprefix(self._prefix)
                if found.is_dir or not is_key(key):
                    continue
                yield StoredObject(key, found.size or 0, found.last_modified or datetime.fromtimestamp(0, UTC))
        except (MinioException, HTTPError, OSError) as error:
            self._fail("list", prefix, error)

    def check(self, make: bool = True) -> None:
        # A write first, because a refused HEAD has no body that would tell a wrong secret from a missing permission.
        try:
            try:
                self._put(self._prefix + _PROBE, b"written by check()")
            except S3Error as error:
                if error.code != "NoSuchBucket" or not make:
                    raise
                self._make_bucket()
                self._put(self._prefix + _PROBE, b"written by check()")
            self._client.remove_object(bucket_name=self._bucket, object_name=self._prefix + _PROBE)
        except (MinioException, HTTPError, OSError) as error:
            self._fail("write to the bucket", "", error)

    def _make_bucket(self) -> None:
        try:
            self._client.make_bucket(bucket_name=self._bucket)
        except S3Error as error:  # another worker was faster
            if error.code not in ("BucketAlreadyOwnedByYou", "BucketAlreadyExists"):
                raise

    def _fail(self, action: str, key: str, error: Exception) -> NoReturn:
        cause, advice = describe(error)
        raise BodyStoreError(self._name, action, key, cause, advice) from error


def describe(error: Exception) -> tuple[str, str]:
    """Cause and advice for an error of the SDK, one line each.

    The SDK signs in headers, so neither its errors nor urllib3's hold a credential; bodies of foreign servers are left
    out all the same.
    """
    if isinstance(error, S3Error):
        code = error.code or "unknown error"
        return f"{code}: {error.message or ''}".rstrip(": ."), _ADVICE.get(code, "")
    if isinstance(error, _NotS3):
        return f"the answer is not that of an S3 server: {error}", "is this address an S3 endpoint?"
    if isinstance(error, ServerError):
        return f"the server answered {error.status_code}", ""
    if isinstance(error, InvalidResponseError):
        return f"{str(error).partition(', Body:')[0]}", "is this address an S3 endpoint?"
    if isinstance(error, MaxRetryError) and error.reason is not None:
        return _reason(error.reason), "is the server running, and is the address in BLACKBOARD_S3 right?"
    return _reason(error), ""


def _reason(error: BaseException) -> str:
    """urllib3 puts the repr of its connection before the text; the text is enough."""
    return str(error).rpartition(">: ")[2] or type(error).__name__


class _Retry(urllib3.Retry):
    """Tries a broken connection again (a kept one may have been closed meanwhile), but never one that was silent."""

    def increment(  # type: ignore[override]  # the arguments are only passed on
        self, method: str | None = None, url: str | None = None, *args: Any, **arguments: Any
    ) -> urllib3.Retry:
        error = arguments.get("error")
        if isinstance(error, HTTPError) and _was_silent(error):
            raise error
        return super().increment(method, url, *args, **arguments)


def _was_silent(error: HTTPError) -> bool:
    """Whether the host neither answered nor took what was sent, for as long as was waited."""
    return isinstance(error, ReadTimeoutError) or any(isinstance(cause, TimeoutError) for cause in error.args)


def _connection_pool(timeout: float) -> urllib3.PoolManager:
    # Retry-After is not obeyed: whoever waits here is a flush, and its senders are told to come back instead.
    retries = _Retry(
        total=2,
        connect=1,
        read=1,
        status=2,
        backoff_factor=0.2,
        status_forcelist=(500, 502, 503, 504),
        raise_on_status=False,
        respect_retry_after_header=False,
    )
    return urllib3.PoolManager(
        num_pools=4,
        maxsize=_CONNECTIONS,
        timeout=urllib3.Timeout(connect=min(_CONNECT_TIMEOUT, timeout), read=timeout),
        retries=retries,
        cert_reqs="CERT_REQUIRED",
        ca_certs=os.environ.get("SSL_CERT_FILE") or certifi.where(),
    )
