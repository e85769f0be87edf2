"""Every action in S3 that the roles need: a line per folder. A missing action has a line of its own.

Each action is tried on a key or an upload that does not exist, so that nothing is read, written or deleted: a server
checks permissions first. Only PutObject needs more: an upload is begun and aborted.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from botocore.exceptions import BotoCoreError, ClientError

from tidemark.connections.s3_hints import DENIED
from tidemark.inspect.doctor.checkup import Checkup, Probe
from tidemark.inspect.doctor.roles import S3, Role
from tidemark.inspect.doctor.s3 import CONNECTION, doctor_store, folder
from tidemark.inspect.doctor.s3_needs import PREFIX, Action, S3Need, s3_needs
from tidemark.s3 import ObjectStore, error_code
from tidemark.settings import Settings

# No object and no upload has such a name.
_PROBE = "doctor.probe"
_NO_UPLOAD = "doctor"
# What a permitted action answers about something that does not exist.
_PERMITTED = {"NoSuchKey", "NoSuchUpload", "404"}


def rights_checks(settings: Settings, roles: Sequence[Role]) -> Iterator[Probe]:
    """A check per folder."""
    for need in s3_needs(roles):
        yield Probe(
            subject=S3,
            name=_name(need),
            ask=partial(_ask, settings, need),
            needs=(f"{S3}: {CONNECTION}",),
        )


def rights_key(folder_name: str) -> str:
    """The key of a folder's check."""
    return f"{S3}: folder {folder_name}"


WAREHOUSE_KEY = rights_key("warehouse")


def _name(need: S3Need) -> str:
    return f"folder {need.folder}" if need.folder != PREFIX else "prefix"


def _ask(settings: Settings, need: S3Need, probe: Probe) -> Iterable[Checkup]:
    store = doctor_store(settings)
    place = folder(settings, need.folder)
    may_list = _permitted(store, "s3:ListBucket", place)
    missing = unknown = 0
    for action, roles in need.roles.items():
        if _permitted(store, action, place):
            continue
        # Without the listing, S3 does not say whether an object is missing or not to be read.
        if action == "s3:GetObject" and not may_list:
            unknown += 1
            yield probe.skipped(f"{action} can't be tried without s3:ListBucket", name=f"{action} on {place}")
            continue
        missing += 1
        resource = f"arn:aws:s3:::{store.bucket}" + ("" if "Bucket" in action else f"/{place}*")
        found = f"{action} on {place or 'the bucket'} is not permitted. {', '.join(roles)} needs it"
        hint = f"Allow {action} on {resource} in the role's policy"
        yield probe.failed(found, hint, name=f"{action} on {probe.name}")
    if not missing + unknown:
        yield probe.ok(f"permitted: {', '.join(need.roles)}")


def _permitted(store: ObjectStore, action: Action, place: str) -> bool:
    """Whether S3 permits it. Raises ServiceError for any other refusal."""
    key = place + _PROBE
    try:
        _TRIES[action](store, place, key)
    except (ClientError, BotoCoreError) as error:
        if error_code(error) in DENIED:
            return False
        if error_code(error) not in _PERMITTED:
            raise store.refused(action.removeprefix("s3:"), key, error) from error
    return True


def _list(store: ObjectStore, place: str, _: str) -> None:
    store.client.list_objects_v2(Bucket=store.bucket, Prefix=place, MaxKeys=1)


def _list_uploads(store: ObjectStore, place: str, _: str) -> None:
    store.client.list_multipart_uploads(Bucket=store.bucket, Prefix=place, MaxUploads=1)


def _get(store: ObjectStore, _: str, key: str) -> None:
    store.client.get_object(Bucket=store.bucket, Key=key)


def _put(store: ObjectStore, _: str, key: str) -> None:
    upload = store.client.create_multipart_upload(Bucket=store.bucket, Key=key)["UploadId"]
    try:
        store.client.abort_multipart_upload(Bucket=store.bucket, Key=key, UploadId=upload)
    except ClientError as error:
        if error_code(error) not in DENIED:  # has a line of its own
            raise


def _abort(store: ObjectStore, _: str, key: str) -> None:
    store.client.abort_multipart_upload(Bucket=store.bucket, Key=key, UploadId=_NO_UPLOAD)


def _delete(store: ObjectStore, _: str, key: str) -> None:
    store.client.delete_object(Bucket=store.bucket, Key=key)


_TRIES: dict[Action, Callable[[ObjectStore, str, str], None]] = {
    "s3:ListBucket": _list,
    "s3:ListBucketMultipartUploads": _list_uploads,
    "s3:GetObject": _get,
    "s3:PutObject": _put,
    "s3:DeleteObject": _delete,
    "s3:AbortMultipartUpload": _abort,
}
