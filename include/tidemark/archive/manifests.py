"""Manifests in S3: one per batch, written once, after every object that it lists exists."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tidemark.archive.ledger.segment import REBUILD
from tidemark.core.errors import ConflictError
from tidemark.core.layout import Layout
from tidemark.core.logged_record import LoggedRecord
from tidemark.core.manifest import CommittedRange, DataFile, Manifest, digest, parse_manifest
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.definitions.stream import Stream
from tidemark.s3 import ObjectInfo, ObjectStore

T = TypeVar("T")
Ranges = Mapping[TopicPartition, OffsetRange]
Progress = Callable[[int], object]  # called with the number so far
_READERS = 16
_AT_ONCE = 1_000
_BYTES_AT_ONCE = 32 * 1024 * 1024


def commit_batch(
    store: ObjectStore,
    layout: Layout,
    stream: Stream,
    *,
    writer: str,
    batch: int,
    ranges: Ranges,
    files: Sequence[DataFile],
    now_us: int,
    last: Sequence[LoggedRecord] = (),
    day_settings: str | None = None,
) -> Manifest:
    """Make the files part of the archive. Returns the manifest, that of an earlier attempt if there is one.

    ``day_settings`` decided the days of the rows: the stream's, unless others are given. ``last`` are the last records
    of the logs that the writer has archived, as far as they were read from Kafka.
    Raises ConflictError if the batch was committed with other ranges, or if a file belongs to none of the ranges.
    """
    done = find_manifest(store, layout, writer=writer, batch=batch, ranges=ranges)
    if done is not None:
        return done
    manifest = Manifest(
        stream=stream.name,
        writer=writer,
        batch=batch,
        committed_at_us=now_us,
        time_zone=stream.time_zone,
        settings=stream.archive_settings,
        previous=_previous(store, layout, writer, batch),
        ranges=_committed(ranges, files),
        files=tuple(sorted(files, key=lambda file: file.key)),
        last=tuple(sorted(last, key=lambda item: item.log)),
        day_settings=stream.day_settings if day_settings is None else day_settings,
    )
    if store.put_if_absent(layout.manifest_key(writer, batch), manifest.to_json()):
        return manifest
    done = find_manifest(store, layout, writer=writer, batch=batch, ranges=ranges)
    return manifest if done is None else done


def find_manifest(
    store: ObjectStore,
    layout: Layout,
    *,
    writer: str,
    batch: int,
    ranges: Ranges,
    log_starts: Callable[[], Mapping[TopicPartition, int]] | None = None,
) -> Manifest | None:
    """The batch's manifest, None if the batch is not committed. Raises ConflictError if it has other ranges.

    ``log_starts`` returns the first offset that Kafka holds of each log. With it, the manifest may leave out offsets
    below: retention deleted them before they were read.
    """
    key = layout.manifest_key(writer, batch)
    body = store.get(key)
    if body is None:
        return None
    found = parse_manifest(body, where=key)
    committed = {item.log: item.range for item in found.ranges}
    if committed != dict(ranges) and not (log_starts and _all_but_lost(committed, ranges, log_starts())):
        raise ConflictError(
            "a batch is committed with other ranges",
            expected=_format_ranges(ranges),
            found=_format_ranges(committed),
            where=f"s3://{store.bucket}/{key}",
            hint="Two applications share one checkpoint, or an older checkpoint was restored. Stop one application, or"
            " start with a new checkpoint: nothing is lost, because plans trim overlaps",
        )
    return found


def read_manifests(store: ObjectStore, layout: Layout, *, writer: str | None = None) -> tuple[Manifest, ...]:
    """Every manifest of the stream or of one writer, by writer and batch. Raises FormatError if one does not parse.

    Planning reads the ledger instead (tidemark.archive.ledger.ledger).
    """
    return tuple(each_manifest(store, layout, "" if writer is None else f"{writer}/"))


def require_manifest(store: ObjectStore, layout: Layout, writer: str, batch: int) -> tuple[Manifest, str]:
    """A manifest that the ledger or another manifest names, and its digest; raises ConflictError if it is missing."""
    key = layout.manifest_key(writer, batch)
    body = store.get(key)
    if body is None:
        raise ConflictError(
            "a manifest in the ledger was removed", expected="a manifest", found="no object", where=key, hint=REBUILD
        )
    return parse_manifest(body, where=key), digest(body)


def each_manifest(store: ObjectStore, layout: Layout, writers: str = "") -> Iterator[Manifest]:
    """The manifests one by one; ``writers`` is a prefix of ``<writer>/``."""
    listed = store.list(f"{layout.manifest_prefix}{writers}")
    for bodies in manifest_bodies(store, listed, at_once=_AT_ONCE):
        for key, body in bodies:
            layout.parse_manifest_key(key)
            if body is not None:
                yield parse_manifest(body, where=key)


def manifest_bodies(
    store: ObjectStore, listed: Iterable[ObjectInfo], *, at_once: int
) -> Iterator[list[tuple[str, bytes | None]]]:
    """Keys and bodies in the listing's order, in chunks of ``at_once``; None for an object removed since the listing.

    A chunk of large manifests is shorter: a compaction's manifest may name thousands of ranges.
    """
    with ThreadPoolExecutor(_READERS, thread_name_prefix="manifests") as pool:
        for keys in _chunks(listed, at_once):
            yield list(zip(keys, pool.map(store.get, keys), strict=True))


def counted(items: Iterable[T], progress: Progress) -> Iterator[T]:
    """The items; ``progress`` is called with the number of each after it."""
    for number, item in enumerate(items, start=1):
        yield item
        progress(number)


def _chunks(listed: Iterable[ObjectInfo], at_once: int) -> Iterator[list[str]]:
    keys: list[str] = []
    size = 0
    for item in listed:
        keys.append(item.key)
        size += item.size
        if len(keys) >= at_once or size >= _BYTES_AT_ONCE:
            yield keys
            keys, size = [], 0
    if keys:
        yield keys


def last_manifest(
    store: ObjectStore, layout: Layout, writer: str, *, before: int | None = None, near: int = 0
) -> Manifest | None:
    """The writer's newest manifest, or its newest before batch ``before``; None if there is none.

    ``near`` is a batch shortly before the newest manifest's, as far as the caller knows. The listing starts after it:
    a writer has millions of manifests after some years. If there is none after it, all are listed.
    """
    if before is not None and before > 0:
        key = layout.manifest_key(writer, before - 1)
        body = store.get(key)
        if body is not None:
            return parse_manifest(body, where=key)
    newest = None
    for after in (layout.manifest_key(writer, near), "") if near > 0 else ("",):
        for item in store.list(f"{layout.manifest_prefix}{writer}/", after=after):
            if before is not None and layout.parse_manifest_key(item.key)[1] >= before:
                break
            newest = item.key
        if newest is not None:
            break
    body = store.get(newest) if newest else None
    return parse_manifest(body, where=newest or "") if body is not None else None


def _previous(store: ObjectStore, layout: Layout, writer: str, batch: int) -> str | None:
    before = last_manifest(store, layout, writer, before=batch)
    return None if before is None else digest(before.to_json())


def _committed(ranges: Ranges, files: Sequence[DataFile]) -> tuple[CommittedRange, ...]:
    rows = dict.fromkeys(ranges, 0)
    for file in files:
        if ranges.get(file.log) != file.range:
            raise ConflictError(
                "a file belongs to no range of its batch",
                expected=ranges.get(file.log, f"no file of {file.log}"),
                found=file.range,
                where=file.key,
            )
        rows[file.log] += file.rows
    return tuple(CommittedRange(log=log, range=ranges[log], rows=rows[log]) for log in sorted(ranges))


def _all_but_lost(committed: Ranges, ranges: Ranges, log_starts: Mapping[TopicPartition, int]) -> bool:
    return committed.keys() <= ranges.keys() and all(
        item.start <= (done := committed[log]).start <= max(item.start, log_starts[log]) and done.end == item.end
        if log in committed
        else item.end <= log_starts[log]
        for log, item in ranges.items()
    )


def _format_ranges(ranges: Ranges) -> str:
    return ", ".join(f"{log} {ranges[log]}" for log in sorted(ranges)) or "no ranges"
