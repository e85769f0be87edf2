"""Step ``refill``: fetch exactly what step ``plan`` found missing from Kafka into the archive."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby

from pyspark.sql import SparkSession

from tidemark.archive.loss import split_at
from tidemark.archive.manifests import commit_batch, read_manifests
from tidemark.archive.write.sink import write_range
from tidemark.core.codec import encode
from tidemark.core.days import micros
from tidemark.core.errors import ConflictError, IncompleteError
from tidemark.core.manifest import REFILL, CommittedRange, Manifest
from tidemark.core.offsets import OffsetRange, TopicPartition, subtract
from tidemark.kafka.positions import watermarks
from tidemark.kafka.topics import logs_of
from tidemark.reconcile.plan.holes import LogRanges
from tidemark.reconcile.plan.step import refill_ranges
from tidemark.run import Run
from tidemark.spark.kafka_source import read_ranges
from tidemark.spark.records import records

_logger = logging.getLogger(__name__)

# A minute or so of work for each log, which is what a retry repeats.
PIECE_OFFSETS = 5_000_000
Ranges = Mapping[TopicPartition, OffsetRange]


def refill_run(run: Run, spark: SparkSession) -> None:
    """Commit one batch per round of ranges (one, or a piece of one, per log) under the writer ``refill-<run>``.

    A range is a gap, or lies in a hole. None is merged with its neighbours, so nothing archived is archived again. A
    retry finds the batches that are there already and goes on behind them: of a large gap it repeats one piece at most.
    What retention took since the plan is left out, and named as ``lost``: everything else is saved from it, and step
    ``settled`` tells the loss.

    Raises ConflictError where the topic was made again since the plan, also while it was read, and IncompleteError
    where a log ends in front of a range's end.
    """
    with run.step("refill") as out:
        out |= {"ranges": [], "rows": 0, "files": 0, "lost": []}
        writer = f"{REFILL}{run.name}"
        there = list(read_manifests(run.store, run.layout, writer=writer))
        for ranges in rounds(refill_ranges(run), PIECE_OFFSETS):
            held, lost = _held(run, _missing(ranges, there))
            for log, part in lost.items():
                _logger.warning("refill: retention took %s %s since the plan", log, part)
                out["lost"].append({**encode(log), "start": part.start, "end": part.end})
            if held:
                there.append(_refill(run, spark, held, writer, max((item.batch for item in there), default=-1) + 1))
            for done in there:
                own = {(item.log, item.range): item for item in done.ranges if _is_of(item, ranges)}
                out["ranges"] += [
                    {**encode(log), "start": span.start, "end": span.end, "batch": done.batch} for log, span in own
                ]
                out["rows"] += sum(item.rows for item in own.values())
                out["files"] += sum((file.log, file.range) in own for file in done.files)


def _is_of(item: CommittedRange, ranges: Ranges) -> bool:
    return item.log in ranges and item.range.intersect(ranges[item.log]) is not None


def rounds(wanted: LogRanges, piece: int) -> Iterator[Ranges]:
    """The ranges to refill in pieces of so many offsets, as rounds with at most one of each log, in offset order.

    A round is of one topic; ``wanted`` is in the order of logs.
    """
    for _, of_topic in groupby(wanted, key=lambda item: item[0].topic):
        left: dict[TopicPartition, list[OffsetRange]] = {}
        for log, whole in of_topic:
            starts = range(whole.start, whole.end, piece)
            left.setdefault(log, []).extend(OffsetRange(start=at, end=min(at + piece, whole.end)) for at in starts)
        while left:
            yield {log: pieces[0] for log, pieces in left.items()}
            left = {log: pieces[1:] for log, pieces in left.items() if len(pieces) > 1}


def _refill(run: Run, spark: SparkSession, ranges: Ranges, writer: str, batch: int) -> Manifest:
    (topic,) = {log.topic for log in ranges}
    stream = run.stream.model_copy(update={"topic": topic})  # it may be one that the stream read before
    rows = records(read_ranges(spark, run.settings, ranges), stream)
    files = write_range(rows, ranges, stream, run.settings, clock_us=_planned_at_us(run))
    _require_same_logs(run, ranges)  # Spark reads by the topic's name, whichever topic has it
    return commit_batch(
        run.store,
        run.layout,
        run.stream,
        writer=writer,
        batch=batch,
        ranges=ranges,
        files=files,
        now_us=int(datetime.now(UTC).timestamp() * 1_000_000),
    )


def _planned_at_us(run: Run) -> int:
    """When the run fixed its ranges, the same at every retry of the refill; µs UTC."""
    planned_at = datetime.fromisoformat(run.require("plan")["started_at"])
    return micros(planned_at)


def _require_same_logs(run: Run, ranges: Ranges) -> None:
    """The topic must be the one that was planned."""
    (topic,) = {log.topic for log in ranges}
    known = {log.partition: log for log in logs_of(run.settings.kafka_bootstrap, topic)}
    for log in ranges:
        if known.get(log.partition) != log:
            found = known.get(log.partition)
            raise ConflictError(
                "the topic was made again since the plan",
                expected=f"topic id {log.topic_id}",
                found="no such partition" if found is None else f"topic id {found.topic_id}",
                where=str(log),
                hint="Run step 'plan' again",
            )


def _missing(ranges: Ranges, there: Sequence[Manifest]) -> Ranges:
    """What no batch has of the ranges. Of a range that was refilled without what was lost of it, that is its start."""
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
    marks = watermarks(run.settings.kafka_bootstrap, tuple(ranges))
    for mark in marks:
        if mark.high_watermark < ranges[mark.log].end:
            raise IncompleteError(
                "a log ends in front of a range that was to be refilled",
                expected=ranges[mark.log],
                found=f"[{mark.log_start}, {mark.high_watermark})",
                where=str(mark.log),
                hint="The topic has lost records that it had. Run step 'plan' again",
            )
    return split_at({mark.log: mark.log_start for mark in marks}, ranges)
