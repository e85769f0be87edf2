"""The object store: get, put, list, delete, conditional writes. Multipart uploads are in ``tidemark.objects.upload``.

Conditional writes use Amazon S3's ``If-None-Match: *``: the first writer of a key wins, and a later one is refused.
"""

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ConnectionClosedError, NoCredentialsError, ProfileNotFound
from urllib3.exceptions import HTTPError

from tidemark.connections.s3 import S3Identity, connection_options
from tidemark.connections.s3_hints import DENIED, s3_hint
from tidemark.core.errors import ConfigError, ConflictError, ServiceError
from tidemark.settings import Settings

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import GetObjectOutputTypeDef, PaginatorConfigTypeDef


CONFLICT_PAUSES_S = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
READ_TRIES = 3
# More than any page or command needs at once: botocore closes connections beyond this limit, and logs each.
_CONNECTIONS_MAX = 32
# Clients are created in several threads, and boto3's sessions can't do that.
_CREATING = threading.Lock()
# An update fails only if another process updates the same object at the same moment.
UPDATE_TRIES = 10
# How S3Proxy, the local stack's server, lists an unfinished object. No object of ours has such a name.
_UNFINISHED = re.compile(r"-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """One row of a listing; ``size`` in bytes. ``etag`` changes with every write, at the server's time ``modified``."""

    key: str
    size: int
    etag: str
    modified: datetime


def identity(settings: Settings) -> S3Identity:
    """Who calls S3, by the settings."""
    return S3Identity(
        access_key=settings.s3_access_key.get_secret_value(),
        secret_key=settings.s3_secret_key.get_secret_value(),
        session_token=settings.s3_session_token.get_secret_value(),
        profile=settings.s3_profile,
        role_arn=settings.s3_role_arn,
        external_id=settings.s3_external_id,
        sts_endpoint=settings.s3_sts_endpoint,
        region=settings.s3_region,
        ca_bundle=str(settings.s3_ca_bundle or ""),
        proxy=settings.s3_proxy,
    )


def current_keys(settings: Settings) -> dict[str, str]:
    """The identity's keys of this moment, by pyiceberg's names.

    Raises ServiceError if there are none, or the role is refused.
    """
    try:
        keys = identity(settings).current()
        if keys is None:
            raise NoCredentialsError
    except (ClientError, BotoCoreError) as error:
        client = s3_client(settings)
        raise failed_call("S3 gives no keys to pyiceberg", client, error, bucket=settings.bucket) from error
    named = {"access-key-id": keys.access_key, "secret-access-key": keys.secret_key, "session-token": keys.token}
    return {f"s3.{name}": value for name, value in named.items() if value}


def path_style(settings: Settings) -> bool:
    """Whether URLs have the bucket in their path, not in the name of the host."""
    return settings.s3_addressing == "path" or (settings.s3_addressing == "auto" and bool(settings.s3_endpoint))


def s3_client(
    settings: Settings, *, attempts: int = 10, connect_timeout_s: float = 10, read_timeout_s: float = 60
) -> "S3Client":
    """A boto3 client for the settings' server and identity. Every object that it creates asks for their encryption.

    Each call is tried ``attempts`` times, with botocore's pauses. Ten tries outlast 25 s of 5xx answers or broken
    connections, and 110 s of SlowDown. A failed batch would send all of its bytes again.

    The client signs each body's SHA-256, so the server refuses an object or part with a changed byte.
    ``when_required`` leaves out only further checksums, which not every server knows.
    Raises ConfigError if there is no such profile.
    """
    caller = identity(settings)
    verify, proxies = connection_options(caller.ca_bundle, caller.proxy)
    style: Literal["path", "virtual", "auto"] = "path" if path_style(settings) else settings.s3_addressing
    try:
        with _CREATING:
            client = caller.session().client(
                "s3",
                endpoint_url=settings.s3_endpoint,
                region_name=settings.s3_region,
                verify=verify,
                config=Config(
                    retries={"mode": "standard", "max_attempts": attempts},
                    connect_timeout=connect_timeout_s,
                    read_timeout=read_timeout_s,
                    max_pool_connections=_CONNECTIONS_MAX,
                    s3={"addressing_style": style},
                    proxies=proxies,
                    request_checksum_calculation="when_required",
                    response_checksum_validation="when_required",
                ),
            )
    except ProfileNotFound as error:
        raise ConfigError(
            "no such AWS profile", found=error, where="TIDEMARK_S3_PROFILE, or else AWS_PROFILE"
        ) from error
    _add_to_requests(client, settings)
    return client


def _add_to_requests(client: "S3Client", settings: Settings) -> None:
    """Add what is said in every request, so that no call of the platform can leave it out."""
    encryption = encryption_options(settings)

    def encrypt(params: dict[str, Any], **_: object) -> None:
        params.update(encryption)

    def pay(params: dict[str, Any], **_: object) -> None:
        params["headers"]["x-amz-request-payer"] = "requester"

    if encryption:
        for call in ("PutObject", "CreateMultipartUpload", "CopyObject"):
            client.meta.events.register(f"before-parameter-build.s3.{call}", encrypt)
    if settings.s3_requester_pays:
        client.meta.events.register("before-call.s3", pay)


def encryption_options(settings: Settings) -> dict[str, Any]:
    """The arguments of PutObject that ask for the settings' encryption; none leaves it to the bucket."""
    if not settings.s3_encryption:
        return {}
    return {
        "ServerSideEncryption": settings.s3_encryption,
        **({"SSEKMSKeyId": settings.s3_kms_key} if settings.s3_kms_key else {}),
        **({"BucketKeyEnabled": True} if settings.s3_bucket_key else {}),
    }


def error_code(error: Exception) -> str:
    """S3's error code, for example ``NoSuchKey``, or the HTTP status if the body names none.

    For an error without an answer it is the error's type.
    """
    if not isinstance(error, ClientError):
        return type(error).__name__
    return str(error.response.get("Error", {}).get("Code") or error.response["ResponseMetadata"]["HTTPStatusCode"])


def failed_call(
    problem: str, client: "S3Client", error: Exception, *, bucket: str, key: str = "", hint: str | None = None
) -> ServiceError:
    """The error to raise for a call that failed. Without a ``hint`` it has the one for S3's code, if there is one."""
    code = error_code(error)
    operation = error.operation_name if isinstance(error, ClientError) else ""
    hint = hint or s3_hint(
        code,
        operation=operation,
        message=str(error),
        endpoint=client.meta.endpoint_url,
        bucket=bucket,
        key=key,
    )
    return ServiceError(problem, found=f"{code}: {error}", where=f"s3://{bucket}/{key}", hint=hint)


def require_s3(settings: Settings) -> None:
    """Raise ServiceError, within 10 s, if the server can't be reached or does not know the caller.

    For commands: their own calls wait half a minute for a server that does not answer. Nothing is read: whether the
    caller may read is left to the calls that need it.
    """
    client = s3_client(settings, attempts=2, connect_timeout_s=4, read_timeout_s=4)
    try:
        client.list_objects_v2(Bucket=settings.bucket, Prefix=settings.prefix, MaxKeys=1)
    except (ClientError, BotoCoreError) as error:
        if error_code(error) not in DENIED:
            raise failed_call("S3 does not answer", client, error, bucket=settings.bucket) from error


def write_if_absent(write: Callable[[], object]) -> bool:
    """Make one conditional call (``If-None-Match: *``); False if the key is taken.

    Amazon S3 answers 409 during another write of the key, and botocore does not retry that. So the call is repeated for
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
    """Create the settings' bucket if it does not exist; raises ServiceError if the server refuses."""
    client = s3_client(settings)
    try:
        client.create_bucket(Bucket=settings.bucket)
    except (ClientError, BotoCoreError) as error:
        code = error_code(error)
        if code not in {"BucketAlreadyOwnedByYou", "BucketAlreadyExists"}:
            raise failed_call("S3 could not create a bucket", client, error, bucket=settings.bucket) from error


class ObjectStore:
    """One bucket. Every method raises ServiceError with bucket, key and S3's code if the server refuses."""

    def __init__(self, settings: Settings, client: "S3Client | None" = None) -> None:
        self.bucket = settings.bucket
        self.client = client or s3_client(settings)

    def ask(self, key: str, **options: Any) -> "GetObjectOutputTypeDef":
        """The answer to GetObject, its body not read yet; raises ClientError and BotoCoreError as botocore does.

        Repeats the call if an error's answer is cut off: botocore does not retry that, and raises urllib3's error.
        """
        for left in reversed(range(READ_TRIES)):
            try:
                return self.client.get_object(Bucket=self.bucket, Key=key, **options)
            except HTTPError as error:
                if not left:
                    raise ConnectionClosedError(endpoint_url=self.client.meta.endpoint_url, error=error) from error
        raise AssertionError("the last try returns or raises")

    def get(self, key: str) -> bytes | None:
        """The object's bytes; None if there is no object."""
        for _ in range(READ_TRIES):  # botocore retries a call, but not the reading of its answer's body
            try:
                body = self.ask(key)["Body"]
            except (ClientError, BotoCoreError) as error:
                if error_code(error) in {"NoSuchKey", "404"}:
                    return None
                raise self.refused("get", key, error) from error
            try:
                return body.read()
            except BotoCoreError as error:
                cut = error
        raise self.refused("get", key, cut) from cut

    def put(self, key: str, body: bytes, *, content_type: str = "application/octet-stream") -> None:
        """Write the object, replacing another one: for run artefacts, which a retry writes again."""
        try:
            self.client.put_object(Bucket=self.bucket, Key=key, Body=body, ContentType=content_type)
        except (ClientError, BotoCoreError) as error:
            raise self.refused("put", key, error) from error

    def put_if_absent(
        self,
        key: str,
        body: bytes,
        *,
        content_type: str = "application/json",
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> bool:
        """Write the object if the key is free; False if it is taken.

        ``options`` are further arguments of S3's PutObject, for example the storage class.
        """
        try:
            return write_if_absent(
                lambda: self.client.put_object(
                    Bucket=self.bucket, Key=key, Body=body, ContentType=content_type, IfNoneMatch="*", **options
                )
            )
        except (ClientError, BotoCoreError) as error:
            raise self.refused("put", key, error) from error

    def update(self, key: str, change: Callable[[bytes | None], bytes | None]) -> bytes | None:
        """Replace the object by what ``change`` makes of its bytes, for a lease; the result is the object afterwards.

        ``change`` gets None if there is no object, and returns None to leave the object as it is. It is called again
        if another process wrote the object meanwhile. Raises ConflictError if that does not end.
        """
        for _ in range(UPDATE_TRIES):
            found = self.get(key)
            body = change(found)
            if body is None:
                return found
            self.replace(key, body, expected=found)
            # The object decides: a refusal may answer the repetition of a request that succeeded, and S3Proxy, whose
            # conditions are not atomic, may accept two writers at the same moment.
            if self.get(key) == body:
                return body
        raise ConflictError(
            "other processes keep writing an object",
            expected="an object that stays for a moment",
            found=f"{UPDATE_TRIES} other writes",
            where=f"s3://{self.bucket}/{key}",
            hint="Find out which processes start repeatedly, and stop all but one",
        )

    def replace(self, key: str, body: bytes, *, expected: bytes | None) -> bool:
        """Replace the object if its bytes are ``expected`` (None: if the key is free); False if they are not.

        After a lost answer the client repeats the call, and may then be refused because of its own write: see
        ``update``.
        """
        if expected is None:
            return self.put_if_absent(key, body)
        try:
            found = self.ask(key)
            if found["Body"].read() != expected:
                return False
            self.client.put_object(Bucket=self.bucket, Key=key, Body=body, IfMatch=found["ETag"])
        except (ClientError, BotoCoreError) as error:
            if error_code(error) in {"NoSuchKey", "404", "PreconditionFailed", "412", "ConditionalRequestConflict"}:
                return False
            raise self.refused("put", key, error) from error
        return True

    def list(self, prefix: str, *, after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        """The objects below a prefix in key order, starting after ``after``; without unfinished ones.

        ``limit``: no more than so many are asked for.
        """
        few: PaginatorConfigTypeDef = {} if limit is None else {"MaxItems": limit, "PageSize": limit}
        try:
            pages = self.client.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=prefix, StartAfter=after, PaginationConfig=few
            )
            for page in pages:
                for item in page.get("Contents", ()):
                    if _UNFINISHED.search(item["Key"]):
                        continue
                    yield ObjectInfo(
                        key=item["Key"], size=item["Size"], etag=item["ETag"].strip('"'), modified=item["LastModified"]
                    )
        except (ClientError, BotoCoreError) as error:
            raise self.refused("list", prefix, error) from error

    def find(self, key: str) -> ObjectInfo | None:
        """The object as a listing has it now; None if there is no object."""
        try:
            found = self.client.head_object(Bucket=self.bucket, Key=key)
        except (ClientError, BotoCoreError) as error:
            if error_code(error) in {"NoSuchKey", "404"}:
                return None
            raise self.refused("head", key, error) from error
        return ObjectInfo(
            key=key, size=found["ContentLength"], etag=found["ETag"].strip('"'), modified=found["LastModified"]
        )

    def delete_version(self, key: str, etag: str) -> bool:
        """Delete the object if its ETag is still this one; False if it is not.

        Some servers ignore the condition, and some refuse it. So compare the result of ``find`` first.
        """
        try:
            self.client.delete_object(Bucket=self.bucket, Key=key, IfMatch=f'"{etag}"')
        except (ClientError, BotoCoreError) as error:
            if error_code(error) in {"NotImplemented", "501"}:
                self.delete(key)
                return True
            if error_code(error) in {"PreconditionFailed", "412", "NoSuchKey", "404", "ConditionalRequestConflict"}:
                return False
            raise self.refused("delete", key, error) from error
        return True

    def delete(self, key: str) -> None:
        """Delete the object; a key without an object is no error, as on S3."""
        try:
            self.client.delete_object(Bucket=self.bucket, Key=key)
        except (ClientError, BotoCoreError) as error:
            raise self.refused("delete", key, error) from error

    def refused(self, call: str, key: str, error: Exception, *, hint: str | None = None) -> ServiceError:
        """The error to raise for a call that S3 refused."""
        return failed_call(f"S3 {call} failed", self.client, error, bucket=self.bucket, key=key, hint=hint)
