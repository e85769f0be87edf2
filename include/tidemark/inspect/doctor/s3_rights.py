"""Every action in S3 that the roles' policies allow, tried: a line per resource, and one for each missing action.

Each action is tried on a key or an upload that does not exist, so that nothing is read, written or deleted: a server
checks permissions first. A put has a wrong checksum, so that it is refused. Only for KMS an object is written and
deleted.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

from botocore.exceptions import BotoCoreError, ClientError

from tidemark.connections.s3_hints import DENIED
from tidemark.inspect.doctor.checkup import Checkup, Probe
from tidemark.inspect.doctor.roles import S3
from tidemark.inspect.doctor.s3 import CONNECTION, doctor_store, folder
from tidemark.inspect.doctor.s3_needs import S3Need, writable
from tidemark.s3 import ObjectStore, error_code
from tidemark.settings import Settings

_Tries = Mapping[str, Callable[[ObjectStore, str], None]]
_NO_UPLOAD = "doctor"
_KMS = "kms:"
# What a permitted action answers about something that does not exist.
_PERMITTED = {"NoSuchKey", "NoSuchUpload", "404", "BadDigest"}
# The MD5 of another body: a server checks permissions first, then refuses to write it.
_WRONG_MD5 = "1B2M2Y8AsgTpgAmY7PhCfg=="


class NotOfferedError(Exception):
    """The server does not know the call, so nobody needs to permit it."""


class UntriedError(Exception):
    """Why an action can't be tried."""


def rights_checks(settings: Settings, needs: Sequence[S3Need]) -> Iterator[Probe]:
    """A check per resource."""
    place = writable(needs)
    store = cache(partial(doctor_store, settings))  # one client for all
    connected = (f"{S3}: {CONNECTION}",)
    for need in needs:
        if not need.is_key:
            yield Probe(subject=S3, name=need.name, ask=partial(_ask, store, need, _TRIES), needs=connected)
        elif place is not None:
            own = replace(need, key=f"{place.key}-kms")
            after = (*connected, f"{S3}: {place.name}")
            yield Probe(subject=S3, name=need.name, ask=partial(_ask, store, own, _TRIES), needs=after)
        else:
            own = replace(need, key=folder(settings, "data"))
            yield Probe(subject=S3, name=need.name, ask=partial(_ask, store, own, _READER_TRIES), needs=connected)


def _ask(connect: Callable[[], ObjectStore], need: S3Need, tries: _Tries, probe: Probe) -> Iterable[Checkup]:
    store = connect()
    permitted = []
    for action, roles in need.roles.items():
        name = f"{action} on {need.name}"
        try:
            if _is_permitted(store, action, need.key, tries):
                permitted.append(action)
                continue
        except UntriedError as reason:
            yield probe.skipped(str(reason), name=name)
            continue
        except NotOfferedError:
            continue
        found = f"not permitted. Needed by {', '.join(roles)}"
        yield probe.failed(found, f"Allow {action} on {need.resource} in the role's policy", name=name)
    if permitted:
        yield probe.ok(f"permitted: {', '.join(permitted)}")


def _is_permitted(store: ObjectStore, action: str, key: str, tries: _Tries) -> bool:
    """Whether S3 permits it.

    Raises ServiceError for any other refusal, UntriedError if nobody can know, NotOfferedError if the server lacks it.
    """
    if action not in tries:
        raise UntriedError("the doctor can't try it")
    try:
        tries[action](store, key)
    except (ClientError, BotoCoreError) as error:
        if error_code(error) in DENIED:
            # For want of a KMS permission, S3 refuses the object, too. That has a line of its own.
            return _KMS in str(error) and not action.startswith(_KMS)
        if error_code(error) in {"NotImplemented", "501"}:
            raise NotOfferedError from error
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
        if error_code(error) in DENIED and not _may_list(store):
            raise UntriedError("it can't be tried without s3:ListBucket") from error
        raise


def _may_list(store: ObjectStore) -> bool:
    """Whether S3 lists the bucket, for a request that names no prefix, as S3 itself asks it for a missing object."""
    try:
        store.client.list_objects_v2(Bucket=store.bucket, MaxKeys=1)
    except ClientError as error:
        return error_code(error) not in DENIED
    return True


def _put(store: ObjectStore, key: str) -> None:
    store.client.put_object(Bucket=store.bucket, Key=key, Body=b"doctor", ContentMD5=_WRONG_MD5)
    store.client.delete_object(Bucket=store.bucket, Key=key)  # the server did not check


def _abort(store: ObjectStore, key: str) -> None:
    store.client.abort_multipart_upload(Bucket=store.bucket, Key=key, UploadId=_NO_UPLOAD)


def _parts(store: ObjectStore, key: str) -> None:
    store.client.list_parts(Bucket=store.bucket, Key=key, UploadId=_NO_UPLOAD)


def _tag(store: ObjectStore, key: str) -> None:
    store.client.put_object_tagging(Bucket=store.bucket, Key=key, Tagging={"TagSet": [{"Key": "a", "Value": "b"}]})


def _delete(store: ObjectStore, key: str) -> None:
    store.client.delete_object(Bucket=store.bucket, Key=key)


def _data_key(store: ObjectStore, key: str) -> None:
    """By writing a small object."""
    store.client.put_object(Bucket=store.bucket, Key=key, Body=b"doctor")
    store.client.delete_object(Bucket=store.bucket, Key=key)


def _decrypt(store: ObjectStore, key: str) -> None:
    """By reading a small object."""
    try:
        store.client.put_object(Bucket=store.bucket, Key=key, Body=b"doctor")
    except ClientError as error:
        if error_code(error) in DENIED:
            raise UntriedError("it can't be tried without kms:GenerateDataKey") from error
        raise
    try:
        store.client.get_object(Bucket=store.bucket, Key=key)
    finally:
        store.client.delete_object(Bucket=store.bucket, Key=key)


def _decrypt_any(store: ObjectStore, prefix: str) -> None:
    """By reading any object of the folder, for a role that may delete none, and so writes none to try."""
    listed = store.client.list_objects_v2(Bucket=store.bucket, Prefix=prefix, MaxKeys=1).get("Contents", ())
    if not listed:
        raise UntriedError("it can't be tried while there is no object in data/")
    store.client.get_object(Bucket=store.bucket, Key=listed[0]["Key"])


_TRIES: _Tries = {
    "kms:GenerateDataKey": _data_key,
    "kms:Decrypt": _decrypt,
    "s3:ListBucket": _list,
    "s3:ListBucketMultipartUploads": _list_uploads,
    "s3:GetBucketLocation": _location,
    "s3:GetObject": _get,
    "s3:PutObject": _put,
    "s3:PutObjectTagging": _tag,
    "s3:DeleteObject": _delete,
    "s3:AbortMultipartUpload": _abort,
    "s3:ListMultipartUploadParts": _parts,
}
_READER_TRIES: _Tries = {"kms:Decrypt": _decrypt_any}
