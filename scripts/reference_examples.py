"""Examples of what lies in S3, made by the code that writes it."""

import json
from collections.abc import Mapping
from datetime import date
from typing import Any

from tidemark.core.certificate import SealSignature, certify
from tidemark.core.layout import DataName, Layout
from tidemark.core.logged_record import LoggedRecord, record_digest
from tidemark.core.manifest import COMPACTION, CommittedRange, DataFile, DayRows, Manifest, Replaced, digest
from tidemark.core.object_list import day_objects
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.core.plan import Evidence, Gap, Hole, LastBatch, Neighbours, RowsOfDay, Slice, Used
from tidemark.core.seal import PreviousDay, Seal, SealedLog
from tidemark.objects.checksum import ALGORITHM
from tidemark.objects.footer import Footer

DAY, ZONE, SETTINGS = date(2013, 1, 14), "America/New_York", "5f0c6a1e9b7d4c32"
LAYOUT = Layout(prefix="lake", stream="flights")
LOG = TopicPartition(topic="flights", topic_id="2FJxr3KbTBW0sCw3oLx0Zg", partition=0)
WRITER = "7d3a9c0e-2f41-4c58-9f0e-51b8d1a3c6f2"
START_US = 1_358_139_600_000_000  # the day's first µs
HOUR_US = 3_600_000_000
ETAG = "9b2cf535f27731c974343645a3985328"


def batch(
    number: int, start: int, end: int, previous: Manifest | None, *, writer: str = WRITER, holes: int = 0
) -> Manifest:
    """A manifest of one range of one log, with one object on one day."""
    whole = OffsetRange(start=start, end=end)
    name = DataName(path="year=2013/month=01/day=14/hour=05", topic=LOG.topic, partition=0, range=whole, seq=0)
    rows, last = end - start - holes, end - 1
    file = DataFile(
        key=LAYOUT.data_key(name),
        log=LOG,
        range=whole,
        rows=rows,
        bytes=rows * 61,
        first_offset=start,
        last_offset=last,
        min_timestamp_us=START_US + start * 1_000_000,
        max_timestamp_us=START_US + last * 1_000_000,
        days=(DayRows(day=DAY, rows=rows, first_offset=start, last_offset=last),),
        checksum=f"{ALGORITHM}:{digest(name.path.encode() + bytes([number]))}",
        sha256=digest(bytes([number])),
    )
    return Manifest(
        stream=LAYOUT.stream,
        writer=writer,
        batch=number,
        committed_at_us=START_US + 7 * HOUR_US + number * 10_000_000,
        time_zone=ZONE,
        settings=SETTINGS,
        day_settings=f"event_time.extractor=record, time_zone={ZONE}",
        previous=None if previous is None else digest(previous.to_json()),
        ranges=(CommittedRange(log=LOG, range=whole, rows=rows),),
        files=(file,),
        last=(
            LoggedRecord(
                log=LOG,
                offset=last,
                timestamp_us=START_US + last * 1_000_000,
                digest=record_digest(None, b"%d" % last),
                leader_epoch=4,
            ),
        ),
    )


FIRST = batch(0, 0, 500, None)
SECOND = batch(1, 500, 1200, FIRST)
MERGED = batch(0, 0, 1200, None, writer=COMPACTION)
COMPACTED = Manifest(
    **{name: getattr(MERGED, name) for name in Manifest.__dataclass_fields__ if name != "replaces"},
    replaces=tuple(
        Replaced(
            writer=item.writer,
            batch=item.batch,
            log=LOG,
            range=item.ranges[0].range,
            files=tuple((file.key, file.checksum, ETAG) for file in item.files),
            digest=digest(item.to_json()),
        )
        for item in (FIRST, SECOND)
    ),
)
SEALED = Seal(
    stream=LAYOUT.stream,
    day=DAY,
    version=1,
    run="scheduled__2013-01-15T05:30:00+00:00",
    time_zone=ZONE,
    sealed_at_us=START_US + 25 * HOUR_US,
    previous=None,
    rows_read=1178,
    rows_published=1175,
    rows_quarantined=3,
    duplicates_trimmed=0,
    refilled_offsets=0,
    quality="passed",
    snapshot_id=4_291_866_117_120_951_563,
    quarantine_snapshot_id=8_102_937_733_120_118_417,
    logs=(
        SealedLog(
            log=LOG,
            start=0,
            end=1200,
            used=tuple(
                Used(
                    range=OffsetRange(start=start, end=end),
                    committed=OffsetRange(start=start, end=end),
                    writer=WRITER,
                    batch=number,
                )
                for number, (start, end) in enumerate([(0, 500), (520, 1200)])
            ),
            gaps=(
                Gap(
                    range=OffsetRange(start=500, end=520),
                    kind="lost",
                    neighbours=Neighbours(before_us=START_US + 499_000_000, after_us=START_US + 520_000_000),
                ),
            ),
            holes=(
                Hole(
                    range=OffsetRange(start=520, end=1200),
                    missing=2,
                    cause="transactional",
                    evidence=Evidence(transactional=2, compacted=0, unexplained=0, ranges=()),
                ),
            ),
        ),
    ),
    reason="requested",
    planned_at_us=START_US + 24 * HOUR_US,
    objects=day_objects(
        (
            Slice(
                key=file.key,
                log=LOG,
                range=file.range,
                whole=True,
                bytes=file.bytes,
                sha256=file.sha256,
                rows=(RowsOfDay(day=DAY, rows=file.rows),),
            )
            for item in (FIRST, SECOND)
            for file in item.files
        ),
        DAY,
    )[0],
    previous_day=PreviousDay(day=date(2013, 1, 13), version=2, digest=digest(b"the seal of the day before")),
    last_batches=(LastBatch(writer=WRITER, batch=1),),
)
FOOTER = Footer(
    rows=500,
    first_offset=0,
    last_offset=499,
    checksum=FIRST.files[0].checksum,
    settings=SETTINGS,
    topic_id=LOG.topic_id,
)


def example_keys() -> str:
    """A key of every kind."""
    data = FIRST.files[0].key
    found = {
        data: "data object",
        LAYOUT.manifest_key(WRITER, 0): "manifest",
        LAYOUT.manifest_key(COMPACTION, 0): "manifest of a compaction",
        LAYOUT.ledger_key(1): "ledger segment",
        LAYOUT.seal_key(DAY, 1): "seal",
        LAYOUT.certificate_key(DAY, 1): "certificate",
        LAYOUT.object_list_key(DAY, SEALED.objects.sha256): "list of objects",
        LAYOUT.run_key(SEALED.run, "report.html"): "report of a run",
        LAYOUT.heartbeat_key("archive"): "heartbeat",
        f"{LAYOUT.checkpoint_prefix('archive')}offsets/0": "checkpoint of Spark",
    }
    return "| Key | Holds |\n|---|---|\n" + "".join(f"| `{key}` | {what} |\n" for key, what in found.items())


def manifest() -> str:
    """A manifest."""
    return _json(json.loads(FIRST.to_json()))


def compaction() -> str:
    """What a compaction's manifest has besides."""
    return _json(
        {"format": json.loads(COMPACTED.to_json())["format"], "replaces": json.loads(COMPACTED.to_json())["replaces"]}
    )


def seal() -> str:
    """A seal."""
    return _json(json.loads(SEALED.to_json()))


def certificate() -> str:
    """A signed certificate, without the fields of its seal."""
    signature = SealSignature(public_key=digest(b"public key"), signature=digest(b"one half") + digest(b"another"))
    found = json.loads(certify(SEALED, lambda _: signature).to_json())
    return _json({**found, "seal": {name: found["seal"][name] for name in ("stream", "day", "version", "objects")}})


def footer() -> str:
    """The entry in the footer of a data object."""
    return _json(json.loads(next(iter(FOOTER.metadata().values()))))


def _json(value: Mapping[str, Any]) -> str:
    return f"```json\n{json.dumps(value, indent=2)}\n```\n"
