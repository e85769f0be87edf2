"""The object store, behind five methods. Multipart uploads live in ``tidemark.objects.upload``.

Conditional writes follow Amazon S3's ``If-None-Match: *``: the first writer of a key wins, a later one is told.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ConnectionClosedError
from urllib3.exceptions import HTTPError

from tidemark.core.errors import ServiceError
from tidemark.settings import Settings

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import GetObjectOutputTypeDef


CONFLICT_PAUSES_S = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
READ_TRIES = 3
# How S3Proxy, the local stack's server, lists an object that is being written; nothing of ours is named so.
_IN_THE_MAKING = re.compile(r"-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """One row of a listing; ``size`` in bytes. ``etag`` changes whenever the object is written, by the server's clock
    at ``modified``."""

    key: str
    size: int
    etag: str
    modified: datetime


def s3_client(settings: Settings, *, attempts: int = 10, read_timeout_s: float = 60) -> "S3Client":
    """A boto3 client for the settings' server; 10 s to connect.

    Each call is tried ``attempts`` times, with botocore's pauses: ten tries outlast up to 25 s of 5xx answers, refused
    and cut connections, and up to 110 s of SlowDown. A failed batch would send all of its bytes again.

    Integrity: the client signs each body's SHA-256 (``when_required`` leaves out only the further checksums that not
    every server knows), so the server refuses an object or part of which a byte was changed on the way.
    """
    return boto3.client(
        "s3",
        endpoint_url=settings.s3_endpoint,
        region_name=settings.s3_region,
        aws_access_key_id=settings.s3_access_key.get_secret_value(),
        aws_secret_access_key=settings.s3_secret_key.get_secret_value(),
        config=Config(
            retries={"mode": "standard", "max_attempts": attempts},
            connect_timeout=10,
            read_timeout=read_timeout_s,
            s3={"addressing_style": "path" if settings.s3_endpoint else "auto"},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )


def error_code(error: ClientError) -> str:
    """S3's error code, e.g. ``NoSuchKey``, or the HTTP status where the body names none."""
    return str(error.response.get("Error", {}).get("Code") or error.response["ResponseMetadata"]["HTTPStatusCode"])


def write_if_absent(write: Callable[[], object]) -> bool:
    """Make one conditional call (``If-None-Match: *``); False where the key is taken.

    Amazon S3 answers 409 while another write of the key is under way, which botocore does not retry: tried again for
    some 6 s. Raises what ``write`` raises otherwise.
    """
    for pause_s in (*CONFLICT_PAUSES_S, None):
        try:
            write()
        except ClientError as error:
            code = error_code(error)
            if code in {"PreconditionFailed", "412"}:
                return False
            if code not in {"ConditionalRequestConflict", "OperationAborted", "409"} or pause_s is None:
                raise
            time.sleep(pause_s)
        else:
            return True
    raise AssertionError("the last try returns or raises")


def ensure_bucket(settings: Settings) -> None:
    """Make the settings' bucket where it is not there; raises ServiceError when the server refuses."""
    client = s3_client(settings)
    try:
        client.create_bucket(Bucket=settings.bucket)
    except (ClientError, BotoCoreError) as error:
        code = error_code(error) if isinstance(error, ClientError) else type(error).__name__
        if code not in {"BucketAlreadyOwnedByYou", "BucketAlreadyExists"}:
            raise ServiceError("S3 could not make a bucket", found=f"{code}: {error}", where=settings.bucket) from error


class ObjectStore:
    """One bucket. Every method raises ServiceError, naming bucket, key and S3's code, when the server refuses."""

    def __init__(self, settings: Settings, client: "S3Client | None" = None) -> None:
        self.bucket = settings.bucket
        self.client = client or s3_client(settings)

    def ask(self, key: str, **options: Any) -> "GetObjectOutputTypeDef":
        """The answer to GetObject, its body still to be read; raises ClientError and BotoCoreError as botocore does.

        An error's answer that is cut off is asked for again: botocore neither does that nor raises an error of its own.
        """
        for left in reversed(range(READ_TRIES)):
            try:
                return self.client.get_object(Bucket=self.bucket, Key=key, **options)
            except HTTPError as error:
                if not left:
                    raise ConnectionClosedError(endpoint_url=self.client.meta.endpoint_url, error=error) from error
        raise AssertionError("the last try returns or raises")

    def get(self, key: str) -> bytes | None:
        """The object's bytes, or None where there is none."""
        for _ in range(READ_TRIES):  # botocore retries a call, but not the reading of its answer's body
            try:
                body = self.ask(key)["Body"]
            except ClientError as error:
                if error_code(error) in {"NoSuchKey", "404"}:
                    return None
                raise self._refused("get", key, error) from error
            except BotoCoreError as error:
                raise self._refused("get", key, error) from error
            try:
                return body.read()
            except BotoCoreError as error:
                cut = error
        raise self._refused("get", key, cut) from cut

    def put(self, key: str, body: bytes, *, content_type: str = "application/octet-stream") -> None:
        """Write the object, replacing what is there: for run artefacts, which a retry writes again."""
        try:
            self.client.put_object(Bucket=self.bucket, Key=key, Body=body, ContentType=content_type)
        except (ClientError, BotoCoreError) as error:
            raise self._refused("put", key, error) from error

    def put_if_absent(
        self,
        key: str,
        body: bytes,
        *,
        content_type: str = "application/json",
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> bool:
        """Write the object if the key is free; False where somebody's object is there already.

        ``options`` are further arguments of S3's PutObject, such as its storage class.
        """
        try:
            return write_if_absent(
                lambda: self.client.put_object(
                    Bucket=self.bucket, Key=key, Body=body, ContentType=content_type, IfNoneMatch="*", **options
                )
            )
        except (ClientError, BotoCoreError) as error:
            raise self._refused("put", key, error) from error

    def replace(self, key: str, body: bytes, *, expected: bytes | None) -> bool:
        """Write the object if it is ``expected`` still (None: if the key is free); False where it is something else.

        A lost answer makes the client ask again, and its own object is something else then: read before you despair.
        """
        if expected is None:
            return self.put_if_absent(key, body)
        try:
            found = self.ask(key)
            if found["Body"].read() != expected:
                return False
            self.client.put_object(Bucket=self.bucket, Key=key, Body=body, IfMatch=found["ETag"])
        except ClientError as error:
            if error_code(error) in {"NoSuchKey", "404", "PreconditionFailed", "412", "ConditionalRequestConflict"}:
                return False
            raise self._refused("put", key, error) from error
        except BotoCoreError as error:
            raise self._refused("put", key, error) from error
        return True

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        """Every object below a prefix, in key order, starting behind ``after``; none that is still being written."""
        try:
            pages = self.client.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=prefix, StartAfter=after
            )
            for page in pages:
                for item in page.get("Contents", ()):
                    if _IN_THE_MAKING.search(item["Key"]):
                        continue
                    yield ObjectInfo(
                        key=item["Key"], size=item["Size"], etag=item["ETag"].strip('"'), modified=item["LastModified"]
                    )
        except (ClientError, BotoCoreError) as error:
            raise self._refused("list", prefix, error) from error

    def delete(self, key: str) -> None:
        """Remove the object; a key without one is fine, as on S3."""
        try:
            self.client.delete_object(Bucket=self.bucket, Key=key)
        except (ClientError, BotoCoreError) as error:
            raise self._refused("delete", key, error) from error

    def _refused(self, call: str, key: str, error: Exception) -> ServiceError:
        code = error_code(error) if isinstance(error, ClientError) else type(error).__name__
        return ServiceError(f"S3 {call} failed", found=f"{code}: {error}", where=f"s3://{self.bucket}/{key}")
