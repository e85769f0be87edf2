"""S3: reached, authenticated, its clock, encryption, and conditional writes."""

import time
from collections.abc import Callable, Iterable, Iterator
from email.utils import parsedate_to_datetime
from functools import partial
from uuid import uuid4

from botocore.exceptions import BotoCoreError, ClientError

from tidemark.archive.stream.conditional_writes import replaced_by_upload
from tidemark.connections.s3_hints import DENIED
from tidemark.core.errors import TidemarkError
from tidemark.inspect.doctor.checkup import Checkup, Probe, failure
from tidemark.inspect.doctor.clock import clock_line
from tidemark.inspect.doctor.roles import S3
from tidemark.s3 import ObjectStore, error_code, s3_client
from tidemark.settings import Settings

CONNECTION = "connection"
_BODY = b"The doctor writes this object and deletes it.\n"
_OTHER_BODY = b"This must not replace another object.\n"
_REFUSED = {"PreconditionFailed", "412", "ConditionalRequestConflict", "409"}
_UNKNOWN = {"NotImplemented", "501"}
_USE_ANOTHER = "Use a server that honours conditional writes, as Amazon S3 does: writers could overwrite the archive"
_Ask = Callable[[ObjectStore, str, Probe], Checkup]


def doctor_store(settings: Settings) -> ObjectStore:
    """A client that gives up soon."""
    return ObjectStore(settings, s3_client(settings, attempts=2, connect_timeout_s=4, read_timeout_s=8))


def folder(settings: Settings, name: str) -> str:
    """The key of a folder below the deployment's prefix, with a slash at its end unless it is the whole bucket."""
    parts = "/".join(part for part in (settings.prefix, name) if part)
    return f"{parts}/" if parts else ""


def connection_checks(settings: Settings) -> Iterator[Probe]:
    """Checks of the server itself, for any role."""
    yield Probe(subject=S3, name=CONNECTION, ask=partial(_connection, settings))
    yield Probe(subject=S3, name="clock", ask=partial(_clock, settings), needs=(f"{S3}: {CONNECTION}",))


def _connection(settings: Settings, probe: Probe) -> Iterable[Checkup]:
    store, prefix = doctor_store(settings), folder(settings, "")
    server = store.client.meta.endpoint_url
    try:
        store.client.list_objects_v2(Bucket=store.bucket, Prefix=prefix, MaxKeys=1)
    except (ClientError, BotoCoreError) as error:
        if error_code(error) not in DENIED:
            raise store.refused("list", prefix, error) from error
    yield probe.ok(f"bucket {store.bucket} answers at {server}, region {settings.s3_region}")


def _clock(settings: Settings, probe: Probe) -> Iterable[Checkup]:
    store = doctor_store(settings)
    before = time.time()
    try:
        answer = store.client.list_objects_v2(Bucket=store.bucket, Prefix=folder(settings, ""), MaxKeys=1)
        headers = answer["ResponseMetadata"]["HTTPHeaders"]
    except ClientError as error:
        headers = error.response["ResponseMetadata"]["HTTPHeaders"]
    after = time.time()
    if "date" not in headers:
        yield probe.skipped("the server does not say its time")
        return
    there = parsedate_to_datetime(headers["date"]).timestamp()
    yield clock_line(probe, "S3", there, before - 1, after)  # the server cuts its seconds


def conditional_checks(settings: Settings, place: str, needs: tuple[str, ...]) -> Iterator[Probe]:
    """Checks of what makes two writers of one object safe, with an object at the beginning of a key ``place``."""
    for name, ask in (
        ("conditional put", _put),
        ("conditional multipart upload", _multipart),
        ("conditional replacement", _replacement),
        ("conditional delete", _delete),
    ):
        yield Probe(subject=S3, name=name, ask=partial(_with_probe, settings, place, ask), needs=needs)
    if settings.s3_encryption:
        yield Probe(
            subject=S3,
            name="encryption",
            ask=partial(_with_probe, settings, place, partial(_encryption, settings)),
            needs=needs,
        )


def _with_probe(settings: Settings, place: str, ask: _Ask, probe: Probe) -> Iterable[Checkup]:
    """Write an object of the doctor's own, check with it, and delete it."""
    store = doctor_store(settings)
    key = f"{place}-{uuid4().hex}"
    store.put(key, _BODY, content_type="text/plain")
    try:
        line = ask(store, key, probe)
    except TidemarkError as error:
        line = failure(probe, error)
    except (ClientError, BotoCoreError) as error:
        line = failure(probe, store.refused(probe.name, key, error))
    finally:
        store.delete(key)
    return (line,)


def _put(store: ObjectStore, key: str, probe: Probe) -> Checkup:
    if store.put_if_absent(key, _OTHER_BODY):
        return probe.failed("the server overwrote an object in spite of If-None-Match", _USE_ANOTHER)
    return probe.ok("a second put of a key is refused")


def _multipart(store: ObjectStore, key: str, probe: Probe) -> Checkup:
    if replaced_by_upload(store, key, _OTHER_BODY):
        found = "the server completed an upload over an object in spite of If-None-Match"
        return probe.failed(found, _USE_ANOTHER)
    return probe.ok("an upload over an existing key is refused")


def _replacement(store: ObjectStore, key: str, probe: Probe) -> Checkup:
    """Leases are replaced so."""
    etag = store.client.head_object(Bucket=store.bucket, Key=key)["ETag"]
    store.client.put_object(Bucket=store.bucket, Key=key, Body=_OTHER_BODY, IfMatch=etag)
    try:
        store.client.put_object(Bucket=store.bucket, Key=key, Body=_BODY, IfMatch=etag)
    except ClientError as error:
        if error_code(error) not in _REFUSED:
            raise
        return probe.ok("a put over a changed object is refused")
    return probe.failed("the server replaced a changed object in spite of If-Match", _USE_ANOTHER)


def _delete(store: ObjectStore, key: str, probe: Probe) -> Checkup:
    """Maintenance compares an object before it deletes it, so a server without the condition is no failure."""
    try:
        store.client.delete_object(Bucket=store.bucket, Key=key, IfMatch='"00000000000000000000000000000000"')
    except ClientError as error:
        if error_code(error) in _UNKNOWN:
            return probe.ok("the server does not offer it; objects are compared before they are deleted")
        if error_code(error) not in _REFUSED:
            raise
        return probe.ok("a delete of another version is refused")
    return probe.ok("the server ignores the condition; objects are compared before they are deleted")


def _encryption(settings: Settings, store: ObjectStore, key: str, probe: Probe) -> Checkup:
    found = store.client.head_object(Bucket=store.bucket, Key=key).get("ServerSideEncryption")
    if found != settings.s3_encryption:
        hint = "Use a server with this encryption, or leave TIDEMARK_S3_ENCRYPTION out"
        return probe.failed(f"an object asked for {settings.s3_encryption} shows {found}", hint)
    return probe.ok(f"objects are encrypted with {found}")
