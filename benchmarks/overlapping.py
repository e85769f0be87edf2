"""An archive of one day, made without Kafka, with the archive's own encoder and commit.

A stream that loses its checkpoint starts again at an earlier position. From there on, it archives records a second
time, in ranges with other boundaries. The archives of this module have such second copies.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import lru_cache, partial
from itertools import groupby
from multiprocessing import get_context

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.common import PARTITIONS, START_MS, VALUE_BYTES, progress, value
from tidemark.archive.ledger.ledger import read_archived
from tidemark.archive.manifests import commit_batch
from tidemark.archive.write.file import FileTarget, OpenFile
from tidemark.core.layout import DataName, Layout
from tidemark.core.manifest import DataFile
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.core.plan import Plan, Target
from tidemark.core.planner import plan_committed
from tidemark.definitions.stream import Stream
from tidemark.objects.schema import SCHEMA
from tidemark.reconcile.results import FINALIZE_PLAN, ArchiveState, FinalizeResult, RetentionNote
from tidemark.run import Run
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings

DAY = datetime.fromtimestamp(START_MS / 1000, UTC).date()
DAY_US = 86_400_000_000
TOPIC_ID = "id-1"
LOGS = tuple(TopicPartition(topic="rides", topic_id=TOPIC_ID, partition=number) for number in range(PARTITIONS))
WRITERS = 3  # the checkpoint was lost twice
RANGE_RECORDS = 100_000
CHUNK_RECORDS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """One object to write."""

    writer: str
    batch: int
    log: TopicPartition
    range: OffsetRange
    log_end: int


def overlapping(records: int, copies: float) -> list[OffsetRange]:
    """Each writer's range of every log, such that the share ``copies`` of all archived records are second copies."""
    twice = int(records * copies) // PARTITIONS
    distinct = records // PARTITIONS - twice
    ends = [distinct * number // WRITERS for number in range(1, WRITERS + 1)]
    starts = [0, *(end - twice // (WRITERS - 1) for end in ends[:-1])]
    return [OffsetRange(start=start, end=end) for start, end in zip(starts, ends, strict=True)]


def archive_day(run: Run, spans: Sequence[OffsetRange]) -> None:
    """Archive DAY, a writer per span, and finalize the run's plan, so that the rebuild can run."""
    end = max(span.end for span in spans)
    jobs = [
        _File(writer=f"query-{number}", batch=batch, log=log, range=part, log_end=end)
        for number, span in enumerate(spans)
        for batch, part in enumerate(_batches(span))
        for log in LOGS
    ]
    context = get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool, progress() as bar:
        task = bar.add_task(f"archiving {run.stream.name}", total=sum(len(job.range) for job in jobs))
        files = []
        for file in pool.map(partial(_write, run.settings, run.stream), jobs):
            files.append(file)
            bar.advance(task, file.rows)
    done = zip(jobs, files, strict=True)
    for (writer, batch), group in groupby(done, key=lambda item: (item[0].writer, item[0].batch)):
        batch_files = [file for _, file in group]
        commit_batch(
            run.store,
            run.layout,
            run.stream,
            writer=writer,
            batch=batch,
            ranges={file.log: file.range for file in batch_files},
            files=batch_files,
            now_us=batch,
        )
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    with run.step(FINALIZE_PLAN) as attempt:
        attempt.result = FinalizeResult(
            planned_at=now,
            force=False,
            plan=_plan(run),
            archive=ArchiveState(manifests=0, broken_links=()),
            holes=None,
            retention=RetentionNote(summary="not asked", alarm=False, lines=()),
        )


def _batches(span: OffsetRange) -> list[OffsetRange]:
    return [
        OffsetRange(start=start, end=min(start + RANGE_RECORDS, span.end))
        for start in range(span.start, span.end, RANGE_RECORDS)
    ]


def _plan(run: Run) -> Plan:
    history = read_archived(run.store, run.layout, run.stream).history()
    targets = [
        Target(log=log, start=start, end=end, log_start=start, high_watermark=end)
        for log, (start, end) in history.extents().items()
    ]
    return plan_committed(
        stream=run.stream.name,
        run=run.name,
        requested=[DAY],
        targets=targets,
        committed=history.committed(targets, [DAY], {}),
        seen={},
    )


def _write(settings: Settings, stream: Stream, job: _File) -> DataFile:
    """Write one object, in a worker process."""
    target = FileTarget(
        store=_store(settings),
        layout=Layout(prefix=settings.prefix, stream=stream.name),
        part_bytes=stream.archive.part_bytes,
        settings=stream.archive_settings,
    )
    path = f"partition={job.log.partition}"
    name = DataName(path=path, topic=job.log.topic, partition=job.log.partition, range=job.range, seq=0)
    file = OpenFile(target, job.log, name)
    for start in range(job.range.start, job.range.end, CHUNK_RECORDS):
        rows = day_rows(job.log, job.log_end, start, min(start + CHUNK_RECORDS, job.range.end))
        payload = sum(pc.sum(pc.binary_length(rows.column(name))).as_py() for name in ("key", "value"))
        file.add(rows, np.full(rows.num_rows, (DAY - date(1970, 1, 1)).days, dtype=np.int32), payload)
    return file.finish()


@lru_cache(maxsize=1)
def _store(settings: Settings) -> ObjectStore:
    return ObjectStore(settings)


def day_rows(log: TopicPartition, log_end: int, start: int, end: int) -> pa.RecordBatch:
    """Records ``[start, end)`` of a log up to ``log_end``, spread evenly over the day; equal for every writer."""
    size = end - start
    offsets = np.arange(start, end, dtype=np.int64)
    moments = pa.array(START_MS * 1000 + offsets * (DAY_US // log_end)).cast(SCHEMA.field("timestamp").type)
    key, payload, headers = (column.slice(0, size) for column in _payloads())
    kind = np.zeros(size, dtype=np.int32)
    columns = [
        pa.repeat(log.topic, size),
        kind + np.int32(log.partition),
        offsets,
        moments,
        kind,
        key,
        payload,
        headers,
        moments,
    ]
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=SCHEMA)


@lru_cache(maxsize=1)
def _payloads() -> tuple[pa.Array, pa.Array, pa.Array]:
    """Keys, values and headers. They repeat in every chunk, farther apart than a compressor's window."""
    numbers = range(CHUNK_RECORDS)
    noise = np.random.default_rng(1).bytes(CHUNK_RECORDS * VALUE_BYTES // 2).hex()
    values = [value(number, noise[number * VALUE_BYTES : (number + 1) * VALUE_BYTES]).encode() for number in numbers]
    return (
        pa.array([b"bus-%06d" % (number % 5_000) for number in numbers], SCHEMA.field("key").type),
        pa.array(values, SCHEMA.field("value").type),
        pa.array([[]] * CHUNK_RECORDS, SCHEMA.field("headers").type),
    )
