"""Every action in S3 that the roles' policies allow, tried: a line per resource, and one for each missing action.

Each action is tried on a key or an upload that does not exist, so that nothing is read, written or deleted: a server
checks permissions first. Only PutObject needs more: an upload is begun and
aborted; and KMS: an object is written and deleted.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from botocore.exceptions import BotoCoreError, ClientError

from tidemark.connections.s3_hints import DENIED
from tidemark.inspect.doctor.checkup import Checkup, Probe
from tidemark.inspect.doctor.roles import S3
from tidemark.inspect.doctor.s3 import CONNECTION, doctor_store
from tidemark.inspect.doctor.s3_needs import PROBE, S3Need
from tidemark.s3 import ObjectStore, error_code
from tidemark.settings import Settings

_NO_UPLOAD = "doctor"
_KMS = "kms:"
# What a permitted action answers about something that does not exist.
_PERMITTED = {"NoSuchKey", "NoSuchUpload", "404"}


class UntriedError(Exception):
    """Why an action can't be tried."""


def rights_checks(settings: Settings, needs: Iterable[S3Need]) -> Iterator[Probe]:
    """A check per resource."""
    for need in needs:
        yield Probe(
            subject=S3,
            name=need.name,
            ask=partial(_ask, settings, need),
            needs=(f"{S3}: {CONNECTION}",),
        )


def _ask(settings: Settings, need: S3Need, probe: Probe) -> Iterable[Checkup]:
    store = doctor_store(settings)
    tried = []
    for action, roles in need.roles.items():
        name = f"{action} on {need.name}"
        try:
            permitted = _permitted(store, action, need.key)
        except UntriedError as reason:
            yield probe.skipped(str(reason), name=name)
            continue
        tried.append(action)
        if not permitted:
            tried.remove(action)
            found = f"{action} is not permitted. {', '.join(roles)} needs it"
            yield probe.failed(found, f"Allow {action} on {need.resource} in the policy of the role", name=name)
    if tried:
        yield probe.ok(f"permitted: {', '.join(tried)}")


def _permitted(store: ObjectStore, action: str, key: str) -> bool:
    """Whether S3 permits it. Raises ServiceError for any other refusal, UntriedError if nobody can know."""
    if action not in _TRIES:
        raise UntriedError("the doctor can't try it")
    try:
        _TRIES[action](store, key)
    except (ClientError, BotoCoreError) as error:
        if error_code(error) in DENIED:
            # For want of a KMS permission, S3 refuses the object, too. That has a line of its own.
            return _KMS in str(error) and not action.startswith(_KMS)
        if error_code(error) not in _PERMITTED:
            raise store.refused(action.removeprefix("s3:"), key, error) from error
    return True


def _list(store: ObjectStore, prefix: str) -> None:
    store.client.list_objects_v2(Bucket=store.bucket, Prefix=prefix, MaxKeys=1)


def _list_uploads(store: ObjectStore, prefix: str) -> None:
    store.client.list_multipart_uploads(Bucket=store.bucket, Prefix=prefix, MaxUploads=1)


def _location(store: ObjectStore, _: str) -> None:
    store.client.get_bucket_location(Bucket=store.bucket)


def _get(store: ObjectStore, key: str) -> None:
    """Without the listing, S3 does not say whether an object is missing or must not be read."""
    try:
        store.client.get_object(Bucket=store.bucket, Key=key)
    except ClientError as error:
        if error_code(error) in DENIED and not _permitted(store, "s3:ListBucket", key):
            raise UntriedError("it can't be tried without s3:ListBucket") from error
        raise


def _put(store: ObjectStore, key: str) -> None:
    upload = store.client.create_multipart_upload(Bucket=store.bucket, Key=key)["UploadId"]
    try:
        store.client.abort_multipart_upload(Bucket=store.bucket, Key=key, UploadId=upload)
    except ClientError as error:
        if error_code(error) not in DENIED:  # has a line of its own
            raise


def _abort(store: ObjectStore, key: str) -> None:
    store.client.abort_multipart_upload(Bucket=store.bucket, Key=key, UploadId=_NO_UPLOAD)


def _parts(store: ObjectStore, key: str) -> None:
    store.client.list_parts(Bucket=store.bucket, Key=key, UploadId=_NO_UPLOAD)


def _delete(store: ObjectStore, key: str) -> None:
    store.client.delete_object(Bucket=store.bucket, Key=key)


def _data_key(store: ObjectStore, key: str) -> None:
    """By writing a small object."""
    try:
        store.client.put_object(Bucket=store.bucket, Key=key, Body=b"doctor")
    except ClientError as error:
        if error_code(error) in DENIED and _KMS not in str(error):
            raise UntriedError("it can't be tried without s3:PutObject") from error
        raise
    store.client.delete_object(Bucket=store.bucket, Key=key)


def _decrypt(store: ObjectStore, key: str) -> None:
    """By reading a small object, or if none can be written, another one."""
    try:
        store.client.put_object(Bucket=store.bucket, Key=key, Body=b"doctor")
    except ClientError as error:
        if error_code(error) not in DENIED:
            raise
        _read_any(store, key)
        return
    try:
        store.client.get_object(Bucket=store.bucket, Key=key)
    finally:
        store.client.delete_object(Bucket=store.bucket, Key=key)


def _read_any(store: ObjectStore, key: str) -> None:
    prefix = key.rpartition(f"{PROBE}/")[0]
    listed = store.client.list_objects_v2(Bucket=store.bucket, Prefix=prefix, MaxKeys=1).get("Contents", ())
    if not listed:
        raise UntriedError("it can't be tried while there is no object")
    store.client.get_object(Bucket=store.bucket, Key=listed[0]["Key"])


_TRIES: dict[str, Callable[[ObjectStore, str], None]] = {
    "kms:GenerateDataKey": _data_key,
    "kms:Decrypt": _decrypt,
    "s3:ListBucket": _list,
    "s3:ListBucketMultipartUploads": _list_uploads,
    "s3:GetBucketLocation": _location,
    "s3:GetObject": _get,
    "s3:PutObject": _put,
    "s3:DeleteObject": _delete,
    "s3:AbortMultipartUpload": _abort,
    "s3:ListMultipartUploadParts": _parts,
}
