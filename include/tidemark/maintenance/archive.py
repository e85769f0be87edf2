"""Maintenance of a stream's archive: unfinished uploads, objects that no manifest lists, and the ledger.

Crashes leave such uploads, which cost money, and such objects. The ledger is compared with the manifests and updated.
"""

from dataclasses import dataclass
from datetime import datetime

from botocore.exceptions import BotoCoreError, ClientError

from tidemark.archive.ledger.ledger import compact, read_archived, rebuild, require_agreement
from tidemark.archive.manifests import Progress, counted, each_manifest
from tidemark.core.layout import Layout
from tidemark.definitions.stream import Stream
from tidemark.maintenance.key_hashes import KeyHashes
from tidemark.s3 import ObjectInfo, ObjectStore, error_code


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """A multipart upload that was neither completed nor aborted."""

    key: str
    upload_id: str
    started: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintained:
    """What ``maintain`` found, each sorted by key.

    ``orphans`` are data objects that no manifest lists, so no reader sees them. A crashed batch leaves some if its
    repetition has other file boundaries. A manifest that somebody removed leaves some until a refill.
    """

    aborted: tuple[Unfinished, ...]
    left: tuple[Unfinished, ...]
    orphans: tuple[ObjectInfo, ...]


def maintain(
    store: ObjectStore, layout: Layout, *, before: datetime, progress: Progress = lambda _: None
) -> Maintained:
    """Abort the stream's multipart uploads that were started before a moment (with a zone), and list its orphans.

    Objects written since then are not listed: their batch may be running. No object is deleted. If an aborted upload
    was in use, its batch fails and is repeated. ``progress`` is called with the number of manifests read so far. Raises
    ServiceError if S3 refuses.
    """
    uploads = unfinished_uploads(store, layout.data_prefix)
    stale = tuple(item for item in uploads if item.started < before)
    aborted = tuple(item for item in stale if abort_upload(store, item))
    # The objects first: an object committed during this run is in a manifest that is read later.
    listed = KeyHashes.of(item.key for item in store.list(layout.data_prefix) if item.modified < before)
    manifests = counted(each_manifest(store, layout), progress)
    orphans = listed.without(KeyHashes.of(file.key for manifest in manifests for file in manifest.files))
    # A second listing instead of keeping the first one in memory.
    second_listing = store.list(layout.data_prefix) if orphans else ()
    return Maintained(
        aborted=aborted,
        left=tuple(item for item in uploads if item.started >= before),
        orphans=tuple(item for item in second_listing if item.modified < before and item.key in orphans),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """What ``maintain_ledger`` did: the number of manifests in the ledger, of new ones among them, of segments."""

    manifests: int
    new: int
    segments: int


def maintain_ledger(
    store: ObjectStore,
    layout: Layout,
    stream: Stream,
    *,
    from_scratch: bool = False,
    progress: Progress = lambda _: None,
) -> Compacted:
    """Compare the ledger with every manifest it holds, then add the new manifests; or rebuild it ``from_scratch``.

    ``progress`` is called with the number of manifests read so far. Without ``from_scratch`` it counts the new ones
    first, then all of them; and what ``read_archived`` and ``require_agreement`` raise is raised.
    """
    if from_scratch:
        made = rebuild(store, layout, stream, progress)
        return Compacted(manifests=made.manifests, new=made.manifests, segments=1)
    archived = read_archived(store, layout, stream, progress)
    require_agreement(archived.segments, counted(each_manifest(store, layout), progress))
    compact(store, layout, stream, archived)
    after = read_archived(store, layout, stream)
    held = sum(item.manifests for item in after.segments)
    before = sum(item.manifests for item in archived.segments)
    return Compacted(manifests=held, new=held - before, segments=len(after.segments))


def unfinished_uploads(store: ObjectStore, prefix: str) -> list[Unfinished]:
    """The multipart uploads below a prefix, sorted by key. Raises ServiceError if S3 refuses."""
    found = []
    try:
        for page in store.client.get_paginator("list_multipart_uploads").paginate(Bucket=store.bucket, Prefix=prefix):
            found += [
                Unfinished(key=item["Key"], upload_id=item["UploadId"], started=item["Initiated"])
                for item in page.get("Uploads", ())
            ]
    except (ClientError, BotoCoreError) as error:
        raise store.refused("listing of uploads", prefix, error) from error
    return sorted(found, key=lambda item: (item.key, item.upload_id))


def abort_upload(store: ObjectStore, upload: Unfinished) -> bool:
    """Abort the upload; False if it has ended since the listing. Raises ServiceError if S3 refuses."""
    try:
        store.client.abort_multipart_upload(Bucket=store.bucket, Key=upload.key, UploadId=upload.upload_id)
    except (ClientError, BotoCoreError) as error:
        if error_code(error) in {"NoSuchUpload", "404"}:
            return False
        raise store.refused("abort of an upload", upload.key, error) from error
    return True
