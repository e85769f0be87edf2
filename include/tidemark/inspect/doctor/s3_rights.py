"""Every action in S3 that the roles' policies allow, tried: a line per resource, and one for each missing action.

Each action is tried on a key or an upload that does not exist, so that nothing is read, written or deleted: a server
checks permissions first. Only PutObject needs more: an upload is begun and aborted.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from botocore.exceptions import BotoCoreError, ClientError

from tidemark.connections.s3_hints import DENIED
from tidemark.inspect.doctor.checkup import Checkup, Probe
from tidemark.inspect.doctor.roles import S3
from tidemark.inspect.doctor.s3 import CONNECTION, doctor_store
from tidemark.inspect.doctor.s3_needs import S3Need
from tidemark.s3 import ObjectStore, error_code
from tidemark.settings import Settings

_NO_UPLOAD = "doctor"
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
            return "kms:" in str(error) and not action.startswith("kms:")
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


_TRIES: dict[str, Callable[[ObjectStore, str], None]] = {
    "s3:ListBucket": _list,
    "s3:ListBucketMultipartUploads": _list_uploads,
    "s3:GetBucketLocation": _location,
    "s3:GetObject": _get,
    "s3:PutObject": _put,
    "s3:DeleteObject": _delete,
    "s3:AbortMultipartUpload": _abort,
    "s3:ListMultipartUploadParts": _parts,
}
