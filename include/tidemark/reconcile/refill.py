"""Step ``refill``: fetch exactly what step ``plan`` found missing from Kafka into the archive."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby

from pyspark.sql import DataFrame, SparkSession

from tidemark.archive.loss import split_at
from tidemark.archive.manifests import commit_batch, read_manifests
from tidemark.archive.rewritten import with_epochs
from tidemark.archive.write.sink import Written, write_range
from tidemark.core.days import micros
from tidemark.core.errors import ConflictError, IncompleteError
from tidemark.core.manifest import REFILL as REFILL_WRITER
from tidemark.core.manifest import Manifest
from tidemark.core.offsets import OffsetRange, TopicPartition, subtract
from tidemark.core.plan import LogRange
from tidemark.kafka.log_ends import LogEnds
from tidemark.kafka.positions import watermarks
from tidemark.kafka.topics import logs_of
from tidemark.logs import log_range
from tidemark.reconcile.lineage import step_with_lineage
from tidemark.reconcile.results import PLAN, REFILL, RefilledRange, RefillRange, RefillResult
from tidemark.run import Run
from tidemark.spark.client_source import with_any_time
from tidemark.spark.kafka_source import read_ranges
from tidemark.spark.records import records
from tidemark.spark.time_zone import require_same_clocks

_logger = logging.getLogger(__name__)

# A minute or so of work for each log, which is what a retry repeats.
CHUNK_OFFSETS = 5_000_000
Ranges = Mapping[TopicPartition, OffsetRange]


def refill_run(run: Run, spark: SparkSession) -> None:
    """Commit one batch per round of ranges (one, or a chunk of one, per log) under the writer ``refill-<run>``.

    A range is a gap, or lies in a hole. None is merged with its neighbours, so nothing archived is archived again. A
    retry finds the batches that are there already and continues after them: of a large gap it repeats one chunk at
    most. What retention took since the plan is left out and named as ``lost``. Step ``finalize_plan`` reports the
    loss.

    Raises ConflictError where the topic was recreated since the plan, also while it was read, and IncompleteError
    where a log ends before a range's end.
    """
    with step_with_lineage(run, REFILL) as attempt:
        require_same_clocks(spark, run.stream)
        writer = f"{REFILL_WRITER}{run.name}"
        there = list(read_manifests(run.store, run.layout, writer=writer))
        result = attempt.result = RefillResult(ranges=(), rows=0, files=0, lost=())
        for ranges in rounds(run.require(PLAN).refill, CHUNK_OFFSETS):
            held, lost = _held(run, _missing(ranges, there))
            for log, part in lost.items():
                _logger.warning("refill: retention took %s %s since the plan", log, part, extra=log_range(log, part))
            if held:
                there.append(_refill(run, spark, held, writer, max((item.batch for item in there), default=-1) + 1))
            result = attempt.result = _with_round(result, ranges, there, lost)


def _with_round(result: RefillResult, ranges: Ranges, there: Sequence[Manifest], lost: Ranges) -> RefillResult:
    own = [
        (done, item)
        for done in there
        for item in done.ranges
        if item.log in ranges and item.range.intersect(ranges[item.log]) is not None
    ]
    files = sum((file.log, file.range) == (item.log, item.range) for done, item in own for file in done.files)
    return RefillResult(
        ranges=(
            *result.ranges,
            *(RefilledRange(log=item.log, range=item.range, batch=done.batch) for done, item in own),
        ),
        rows=result.rows + sum(item.rows for _, item in own),
        files=result.files + files,
        lost=(*result.lost, *(LogRange(log=log, range=part) for log, part in lost.items())),
    )


def rounds(wanted: Iterable[RefillRange], chunk: int) -> Iterator[Ranges]:
    """The ranges to refill in chunks of so many offsets, as rounds with at most one of each log, in offset order.

    A round is of one topic; ``wanted`` is in the order of logs.
    """
    for _, of_topic in groupby(wanted, key=lambda item: item.log.topic):
        left: dict[TopicPartition, list[OffsetRange]] = {}
        for item in of_topic:
            end = item.range.end
            starts = range(item.range.start, end, chunk)
            left.setdefault(item.log, []).extend(OffsetRange(start=at, end=min(at + chunk, end)) for at in starts)
        while left:
            yield {log: chunks[0] for log, chunks in left.items()}
            left = {log: chunks[1:] for log, chunks in left.items() if len(chunks) > 1}


def _refill(run: Run, spark: SparkSession, ranges: Ranges, writer: str, batch: int) -> Manifest:
    (topic,) = {log.topic for log in ranges}
    stream = run.stream.model_copy(update={"topic": topic})  # it may be one that the stream read before

    def write(source: DataFrame) -> Written:
        return write_range(records(source, stream), ranges, stream, run.settings, clock_us=_planned_at_us(run))

    written = with_any_time(write, read_ranges(spark, run.settings, ranges), run.settings, lambda: ranges)
    _require_same_logs(run, ranges)  # Spark reads by the topic's name, whichever topic has it
    ends = LogEnds(run.settings.kafka).ask(ranges)
    return commit_batch(
        run.store,
        run.layout,
        run.stream,
        writer=writer,
        batch=batch,
        ranges=ranges,
        files=written.files,
        now_us=micros(datetime.now(UTC)),
        last=with_epochs(written.last, ends),
    )


def _planned_at_us(run: Run) -> int:
    """When the run fixed its ranges, the same at every retry of the refill; µs UTC."""
    planned = run.outcome(PLAN)
    assert planned is not None
    return micros(datetime.fromisoformat(planned.started_at))


def _require_same_logs(run: Run, ranges: Ranges) -> None:
    (topic,) = {log.topic for log in ranges}
    known = {log.partition: log for log in logs_of(run.settings.kafka, topic)}
    for log in ranges:
        if known.get(log.partition) != log:
            found = known.get(log.partition)
            raise ConflictError(
                "the topic was recreated since the plan",
                expected=f"topic id {log.topic_id}",
                found="no such partition" if found is None else f"topic id {found.topic_id}",
                where=str(log),
                hint="Start a new run of the days",
            )


def _missing(ranges: Ranges, there: Sequence[Manifest]) -> Ranges:
    """What no batch has of the ranges. Of a range that was refilled but for its lost start, that is the lost start."""
    found = {}
    for log, wanted in ranges.items():
        left = subtract([wanted], [item.range for done in there for item in done.ranges if item.log == log])
        if left:
            found[log] = OffsetRange(start=left[0].start, end=left[-1].end)
    return found


def _held(run: Run, ranges: Ranges) -> tuple[Ranges, Ranges]:
    """What Kafka still holds of the ranges, of the very same logs, and what it does not."""
    if not ranges:
        return {}, {}
    _require_same_logs(run, ranges)
    marks = watermarks(run.settings.kafka, tuple(ranges))
    for mark in marks:
        if mark.high_watermark < ranges[mark.log].end:
            raise IncompleteError(
                "a log ends before the end of a range to refill",
                expected=ranges[mark.log],
                found=f"[{mark.log_start}, {mark.high_watermark})",
                where=str(mark.log),
                hint="The topic has lost records that it had. Start a new run of the days",
            )
    return split_at({mark.log: mark.log_start for mark in marks}, ranges)
