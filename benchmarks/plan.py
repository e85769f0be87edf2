"""Measures planning with 1,000, 100,000 and 1,000,000 committed ranges in the ledger and 1,000 new ones after it.

With 1,000,000 ranges, 10,000 and 100,000 new ones are measured too. The time is that of step ``plan`` without Kafka:
read the ledger, the new manifests and the seals from the local S3 server, find late records, cover, slices, and the
plan as JSON. Each run is a separate process.

A million manifests would take hours to write, so the ledger's segments are built from columns. The new manifests are
like a stream's, with four ranges each. The last ledger is of a topic with transactions: every range lacks one row, that
of a marker. The last line is JSON: median seconds by ranges in the ledger and the peak MiB, with 1,000 new ranges; and
both of them and CPU seconds by new ranges, with 1,000,000 in the ledger.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from tidemark.archive.ledger.ledger import read_archived
from tidemark.archive.ledger.segment import DAYS, FILES, RANGES, Position, Segment, Tables, segment_digest
from tidemark.core.codec import encode
from tidemark.core.layout import Layout
from tidemark.core.manifest import CommittedRange, DataFile, DayRows, Manifest, canonical_json, digest
from tidemark.core.object_list import ObjectList
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.core.plan import Evidence, Hole, Target, Used
from tidemark.core.planner import plan_committed
from tidemark.core.seal import Seal, SealedLog, seen_days
from tidemark.core.transaction_holes import spans
from tidemark.definitions.sections import Speed
from tidemark.definitions.stream import Stream
from tidemark.installation import PROJECT
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.settings import settings as current_settings
from tidemark.stack.local import LocalStack
from tidemark.tables.seals import latest_seals

NEW_RANGES, LONG = 1_000, 100_000  # one run is enough for the latter
# Ranges in the ledger, offsets without a row in each, and the numbers of new ranges.
SIZES = (
    (1_000, 0, (NEW_RANGES,)),
    (100_000, 0, (NEW_RANGES,)),
    (1_000_000, 0, (NEW_RANGES, 10_000, LONG)),
    (1_000_000, 1, (NEW_RANGES,)),
)
PARTITIONS = 4
WRITERS = 8
RANGE_OFFSETS = 1_000
# The ledger's ranges belong to 99 sealed days, the new ones to the day after.
FIRST_DAY = date(2013, 1, 1)
SEALED_DAYS = 99
SEGMENTS = 5
WRITER = "4f8e2c9a-query"
LOGS = tuple(TopicPartition(topic="rides", topic_id="id-1", partition=number) for number in range(PARTITIONS))
console = Console()


def main() -> None:
    """Run the benchmark; see ``--help``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="of each size except the longest (5)")
    parser.add_argument("--ranges", type=int, help="with one ledger of so many ranges only: a trial")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)  # one run, in a separate process
    options = parser.parse_args()
    if options.measure:
        name, new = options.measure
        console.print(json.dumps(measure(name, int(new))), soft_wrap=True, highlight=False)
        return
    table = Table(
        "ranges in the ledger", "with a marker", "new ranges", "s", "of it reading", "CPU s", "peak MiB", "ledger MiB"
    )
    result: dict[str, Any] = {
        "seconds": {},
        "peak_mib": 0,
        "seconds_by_new": {},
        "cpu_by_new": {},
        "peak_mib_by_new": {},
    }
    with LocalStack("bench-plan", root=PROJECT, fresh=True) as stack:
        os.environ.update(stack.env)
        for size, markers, news in SIZES if options.ranges is None else ((options.ranges, 0, (NEW_RANGES,)),):
            ledger_bytes = build(stack.settings, size, markers)
            console.print(f"built {size} ranges")
            for before, new in itertools.pairwise((0, *news)):
                commit_new(stack.settings, size, markers, before, new)
                console.print(f"committed {new} new ranges")
                runs = [_run(_name(size, markers), new) for _ in range(options.runs if new < LONG else 1)]
                seconds, reading, cpu = (
                    round(statistics.median(run[key] for run in runs), 2) for key in ("seconds", "reading", "cpu")
                )
                peak = round(max(run["peak_mib"] for run in runs))
                if new == NEW_RANGES:
                    result["seconds"][f"{size} in transactions" if markers else str(size)] = seconds
                    result["peak_mib"] = max(peak, result["peak_mib"])
                if len(news) > 1:
                    for name, figure in (("seconds", seconds), ("cpu", cpu), ("peak_mib", peak)):
                        result[f"{name}_by_new"][str(new)] = figure
                marked, mib = "each" if markers else "none", round(ledger_bytes / 2**20, 1)
                row = (size, marked, new, seconds, reading, cpu, peak, mib)
                table.add_row(*(str(item) for item in row))
    console.print(table)
    console.print(json.dumps(result), soft_wrap=True, highlight=False)


def _run(stream: str, new: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, __file__, "--measure", stream, str(new)], stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(name: str, new: int) -> dict[str, float]:
    """Plan the day after the sealed ones: seconds, seconds of reading, CPU seconds, and the process's peak MiB."""
    stream, there = _stream(name), current_settings()
    store, layout = ObjectStore(there), Layout(prefix=there.prefix, stream=name)
    day = FIRST_DAY + timedelta(days=SEALED_DAYS)
    started, cpu = time.monotonic(), time.process_time()
    archived = read_archived(store, layout, stream)
    history = archived.history()
    seals = latest_seals(store, layout)
    reading = time.monotonic() - started
    seen = seen_days(seals, stream=name, time_zone=stream.time_zone)
    targets = [
        Target(log=log, start=start, end=end, log_start=start, high_watermark=end)
        for log, (start, end) in history.extents().items()
    ]
    plan = plan_committed(
        stream=name,
        run="bench",
        requested=[day],
        targets=targets,
        committed=history.committed(targets, [day], seen, transactional=spans(seals)),
        seen=seen,
    )
    canonical_json(encode(plan))
    seconds, cpu = time.monotonic() - started, time.process_time() - cpu
    whole = all(not log.gaps and not log.overlaps for log in plan.logs)
    # With markers, the sealed days are one range of each log, with one transactional hole.
    holes = new + PARTITIONS if name.endswith("_markers") else 0
    planned = ([item.day for item in plan.days], len(plan.slices), len(seals), sum(len(log.holes) for log in plan.logs))
    if not (whole and planned == ([day], new, SEALED_DAYS, holes)):
        raise SystemExit(f"unexpected plan: (days, slices, seals, holes) {planned}")
    return {"seconds": seconds, "reading": reading, "cpu": cpu, "peak_mib": _peak_mib()}


def _peak_mib() -> float:
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("this kernel does not report a process's peak memory")


def _stream(name: str) -> Stream:
    speed = Speed(topic="rides.live", dead_letter_topic="rides.dead")
    return Stream(name=name, topic="rides", value_schema="ride STRING", speed=speed)


def _name(size: int, markers: int) -> str:
    return f"plan_{size}_markers" if markers else f"plan_{size}"


def _seals(stream: Stream, size: int, markers: int) -> list[Seal]:
    """The seals of the sealed days, each with everything in the ledger."""
    end = size // PARTITIONS * RANGE_OFFSETS
    span = OffsetRange(start=0, end=end)
    last = size // PARTITIONS - 1
    used = (Used(range=span, committed=span, writer=WRITER, batch=0, last_batch=last),)
    missing = size // PARTITIONS * markers
    evidence = Evidence(transactional=missing, compacted=0, unexplained=0, ranges=())
    holes = (Hole(range=span, missing=missing, cause="transactional", evidence=evidence),) if missing else ()
    logs = tuple(SealedLog(log=log, start=0, end=end, used=used, gaps=(), holes=holes) for log in LOGS)
    return [
        Seal(
            stream=stream.name,
            day=FIRST_DAY + timedelta(days=number),
            version=1,
            run="earlier",
            time_zone=stream.time_zone,
            sealed_at_us=0,
            previous=None,
            rows_read=0,
            rows_published=0,
            rows_quarantined=0,
            duplicates_trimmed=0,
            refilled_offsets=0,
            quality="passed",
            snapshot_id=1,
            quarantine_snapshot_id=None,
            logs=logs,
            reason="requested",
            planned_at_us=0,
            objects=ObjectList(count=0, bytes=0, sha256=sha256().hexdigest()),
        )
        for number in range(SEALED_DAYS)
    ]


def build(settings: Settings, size: int, markers: int) -> int:
    """Build a stream's ledger of ``size`` ranges, and its seals. Return the ledger's bytes."""
    stream = _stream(_name(size, markers))
    store, layout = ObjectStore(settings), Layout(prefix=settings.prefix, stream=stream.name)
    batches, written = size // PARTITIONS, 0
    bounds = [batches * at // SEGMENTS for at in range(SEGMENTS + 1)]
    previous: tuple[int, str] | None = None
    for number, (start, end) in enumerate(itertools.pairwise(bounds), start=1):
        # The last compacted manifest must exist: a reader compares it with the ledger when its writer continues.
        last = ""
        if end == batches:
            body = _manifest(layout, stream, end - 1, None, day=FIRST_DAY, markers=markers)
            store.put(layout.manifest_key(WRITER, end - 1), body)
            last = digest(body)
        position = Position(batch=end - 1, digest=last, manifests=end, rollup="")
        segment = Segment(
            stream=stream.name,
            time_zone=stream.time_zone,
            number=number,
            previous=previous,
            manifests=end - start,
            positions={WRITER: position},
            broken_links=(),
            tables=_tables(layout, start, end, batches, markers),
        )
        body = segment.to_bytes()
        store.put(layout.ledger_key(number), body)
        previous, written = (number, segment_digest(body)), written + len(body)
    for seal in _seals(stream, size, markers):
        store.put(layout.seal_key(seal.day, seal.version), seal.to_json())
    return written


def commit_new(settings: Settings, size: int, markers: int, before: int, new: int) -> None:
    """Write manifests after a ledger of ``size`` ranges, from ``before`` new ranges up to ``new``."""
    stream = _stream(_name(size, markers))
    store, layout = ObjectStore(settings), Layout(prefix=settings.prefix, stream=stream.name)
    day = FIRST_DAY + timedelta(days=SEALED_DAYS)
    first, end = ((size + ranges) // PARTITIONS for ranges in (before, new))
    bodies = [store.get(layout.manifest_key(WRITER, first - 1)) or b""]
    for batch in range(first, end):
        bodies.append(_manifest(layout, stream, batch, digest(bodies[-1]), day=day, markers=markers))
    keys = [layout.manifest_key(WRITER, batch) for batch in range(first, end)]
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(store.put, keys, bodies[1:]))


def _manifest(layout: Layout, stream: Stream, batch: int, previous: str | None, *, day: date, markers: int) -> bytes:
    """A manifest with one file per partition."""
    span = OffsetRange(start=batch * RANGE_OFFSETS, end=(batch + 1) * RANGE_OFFSETS)
    rows = len(span) - markers
    files = [
        DataFile(
            key=_key(layout, day, log.partition, span.start),
            log=log,
            range=span,
            rows=rows,
            bytes=150_000,
            first_offset=span.start,
            last_offset=span.start + rows - 1,
            min_timestamp_us=span.start * 1_000,
            max_timestamp_us=span.end * 1_000,
            days=(DayRows(day=day, rows=rows, first_offset=span.start, last_offset=span.start + rows - 1),),
            checksum=sha256(span.start.to_bytes(8, "big")).hexdigest(),
            sha256=sha256(span.end.to_bytes(8, "big")).hexdigest(),
        )
        for log in LOGS
    ]
    return Manifest(
        stream=stream.name,
        writer=WRITER,
        batch=batch,
        committed_at_us=batch,
        time_zone=stream.time_zone,
        settings=stream.archive_settings,
        previous=previous,
        ranges=tuple(CommittedRange(log=log, range=span, rows=rows) for log in LOGS),
        files=tuple(sorted(files, key=lambda file: file.key)),
    ).to_json()


def _key(layout: Layout, day: date, partition: int, start: int) -> str:
    path = f"year={day.year}/month={day.month:02}/day={day.day:02}"
    return f"{layout.data_prefix}{path}/rides+{partition}+{start:020}+{start + RANGE_OFFSETS:020}+0000.parquet"


def _tables(layout: Layout, first: int, end: int, batches: int, markers: int) -> Tables:
    """The columns of batches ``[first, end)``, with one file per partition, spread over the sealed days."""
    number = np.arange((end - first) * PARTITIONS, dtype=np.int64)
    partition, batch = number % PARTITIONS, first + number // PARTITIONS
    start, day = batch * RANGE_OFFSETS, batch * SEALED_DAYS // batches
    size = np.full_like(number, RANGE_OFFSETS - markers)
    days = [FIRST_DAY + timedelta(days=at) for at in range(SEALED_DAYS)]
    keys = [
        _key(layout, days[at], own, begin)
        for at, own, begin in zip(day.tolist(), partition.tolist(), start.tolist(), strict=True)
    ]
    checksums = [sha256(item.to_bytes(8, "big")).hexdigest() for item in start.tolist()]
    hashes = [sha256(item.to_bytes(8, "big")).hexdigest() for item in (start + RANGE_OFFSETS).tolist()]
    epoch_day = day + (FIRST_DAY - date(1970, 1, 1)).days
    last = start + RANGE_OFFSETS - markers - 1
    spans = (size, start, last, start * 1_000, last * 1_000)
    return Tables(
        logs=LOGS,
        writers=(WRITER,),
        day_settings=("event_time.extractor=record, time_zone=UTC",),
        ranges=_table(
            RANGES,
            [
                partition,
                np.zeros_like(number),
                batch,
                start,
                start + RANGE_OFFSETS,
                size,
                np.zeros_like(number),
            ],
        ),
        files=_table(
            FILES, [number, np.full_like(number, 150_000), *spans, keys, checksums, hashes, np.zeros_like(number)]
        ),
        days=_table(DAYS, [number, number, epoch_day, size, start, last, np.zeros_like(number)]),
    )


def _table(schema: pa.Schema, columns: list[npt.NDArray[np.int64] | list[str]]) -> pa.Table:
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.table(arrays, schema=schema)


if __name__ == "__main__":
    main()
