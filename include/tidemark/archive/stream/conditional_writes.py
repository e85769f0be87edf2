"""Check at each start that the S3 server honours ``If-None-Match: *``. The archive relies on it."""

from contextlib import suppress

from botocore.exceptions import BotoCoreError, ClientError

from tidemark.core.errors import ConfigError
from tidemark.s3 import ObjectStore, write_if_absent

_BODY = b"Tidemark writes this object twice to see whether the server refuses the second time.\n"


def require_conditional_writes(store: ObjectStore, prefix: str) -> None:
    """Write one small object by PutObject, then again, then as a multipart upload; the server must refuse to overwrite.

    Takes five calls at most. Raises ConfigError if the server overwrote the object: a zombie could then replace what
    its successor committed. Raises ServiceError if the server fails otherwise.
    """
    key = f"{prefix}/conditional-writes.probe" if prefix else "conditional-writes.probe"
    if store.put_if_absent(key, _BODY, content_type="text/plain") and store.put_if_absent(key, _BODY):
        raise _ignored(store, key, "wrote an object over one that was there")
    try:
        replaced = replaced_by_upload(store, key, _BODY)
    except (ClientError, BotoCoreError) as error:
        raise store.refused("check of If-None-Match", key, error) from error
    if replaced:
        raise _ignored(store, key, "completed a multipart upload over an object that was there")


def replaced_by_upload(store: ObjectStore, key: str, body: bytes) -> bool:
    """Whether a multipart upload of ``body`` could replace the object. Raises ClientError and BotoCoreError."""
    client, bucket = store.client, store.bucket
    upload = client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
    try:
        part = client.upload_part(Bucket=bucket, Key=key, UploadId=upload, PartNumber=1, Body=body)
        return write_if_absent(
            lambda: client.complete_multipart_upload(
                Bucket=bucket,
                Key=key,
                UploadId=upload,
                MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]},
                IfNoneMatch="*",
            )
        )
    finally:
        with suppress(ClientError, BotoCoreError):  # it has ended, or maintenance removes it
            client.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload)


def _ignored(store: ObjectStore, key: str, did: str) -> ConfigError:
    return ConfigError(
        "the S3 server ignores conditional writes",
        expected="'If-None-Match: *' refused with 412 for a key that is taken",
        found=f"{store.client.meta.endpoint_url} {did}",
        where=f"s3://{store.bucket}/{key}",
        hint="Use a server that honours them, as Amazon S3 does: otherwise a second writer could overwrite the archive",
    )
