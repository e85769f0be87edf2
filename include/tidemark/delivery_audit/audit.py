"""The audit of a span: fix both sides, compare them, check the counts, and save the result as a step of a run."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidemark.archive.ledger.ledger import read_and_compact
from tidemark.core.delivery import DayDelivery, DeliveryAudit
from tidemark.core.layout import Layout
from tidemark.core.offsets import TopicPartition, count
from tidemark.definitions.stream import Stream
from tidemark.delivery_audit.archived import ArchivedRows, KnownRange, find_archived
from tidemark.delivery_audit.compare import Sides, compare
from tidemark.delivery_audit.output_topics import Output, open_output, output_ends, safe_since
from tidemark.delivery_audit.readable import speed_positions
from tidemark.delivery_audit.report import FORMAT, Tally, by_day, sentences
from tidemark.delivery_audit.span import TimeSpan
from tidemark.delivery_audit.step import delivery_step
from tidemark.run import Run
from tidemark.s3 import ObjectStore
from tidemark.spark.failures import task_error
from tidemark.speed.replay.plan import ReplayPlans


def audit_delivery(run: Run, spark: SparkSession, span: TimeSpan, *, unreadable: Sequence[DayDelivery] = ()) -> Tally:
    """Compare the output topics with the archive, and save the result as the run's step ``delivery``.

    ``unreadable`` are days before and after the span that can't be compared. They are saved with its days.
    """
    stream = run.stream
    with delivery_step(run) as attempt:
        sides, tally = _compare(run, spark, span)
        days = by_day(tally, span.days(stream.zone), stream.zone)
        attempt.result = DeliveryAudit(
            days=tuple(sorted((*unreadable, *days), key=lambda item: item.day)),
            details=_value(stream, span, sides, tally),
        )
        read = [*sides.live.ranges.values(), *sides.dead.ranges.values()]
        tally.require_balance(
            rows_min=sides.archived.rows_min, rows_max=sides.archived.rows_max, records_max=count(read)
        )
        return tally


def _compare(run: Run, spark: SparkSession, span: TimeSpan) -> tuple[Sides, Tally]:
    stream, sides = run.stream, _fix(run, span)
    try:
        groups = compare(spark, stream, run.settings, span, sides)
    except (PySparkException, Py4JError) as error:
        raise task_error(error, where=f"delivery audit of {stream.name}", personal=stream.has_personal) from error
    repeats = stream.speed.delivery == "at_least_once"
    return sides, Tally(groups=groups, unarchived=sides.archived.unarchived, repeats=repeats)


def _fix(run: Run, span: TimeSpan) -> Sides:
    """Fix both sides, in the only safe order.

    The stream's positions come before the topics' ends: what is below the positions was delivered before those ends.
    The archive comes last, so that it contains what was delivered, as far as possible.
    """
    store, layout, stream, settings = run.store, run.layout, run.stream, run.settings
    sink = settings.speed_kafka
    positions = speed_positions(store, layout)
    live, dead = (output_ends(sink, topic) for topic in (stream.speed.topic, stream.speed.dead_letter_topic))
    history = read_and_compact(store, layout, stream).history()
    archived = find_archived(stream, settings, span, history)
    since = safe_since(settings.kafka, stream.topic, _earliest(archived, span))
    return Sides(
        archived=archived,
        live=open_output(sink, stream.speed.topic, live, since),
        dead=open_output(sink, stream.speed.dead_letter_topic, dead, since),
        positions=positions,
        replayed=_replayed(store, layout, next(iter(dead)).topic_id),
    )


def _earliest(archived: ArchivedRows, span: TimeSpan) -> datetime:
    """The smallest timestamp that a source record of the span may have."""
    earliest_us = span.start_us if archived.earliest_us is None else min(span.start_us, archived.earliest_us)
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=max(earliest_us, 0))


def _replayed(store: ObjectStore, layout: Layout, topic_id: str) -> dict[TopicPartition, int]:
    """The end of the replayed dead letters, by log of the dead-letter topic."""
    plan = ReplayPlans(store, layout, topic_id).last()
    return {} if plan is None else {item.log: item.until for item in plan.ranges}


def _value(stream: Stream, span: TimeSpan, sides: Sides, tally: Tally) -> dict[str, Any]:
    zone = stream.zone
    return {
        "format": FORMAT,
        "stream": stream.name,
        "version": stream.version,
        "time_zone": stream.time_zone,
        "from": span.start.astimezone(zone).isoformat(),
        "to": span.end.astimezone(zone).isoformat(),
        "verdict": tally.verdict,
        "sentences": sentences(tally),
        "counts": tally.counts(),
        "unexpected": tally.kinds("unexpected"),
        "pending": tally.kinds("pending"),
        "hours": tally.hours(zone),
        "ranges": {
            "archive": _archive_ranges(sides.archived),
            "unarchived": [_range(item) for item in tally.unarchived],
            "topics": [_topic(item) for item in (sides.live, sides.dead)],
            "positions": [{**asdict(log), "offset": at} for log, at in sorted(sides.positions.items())],
        },
    }


def _range(item: KnownRange) -> dict[str, Any]:
    return {"topic_id": item.log.topic_id, "partition": item.log.partition, **asdict(item.range)}


def _archive_ranges(archived: ArchivedRows) -> list[dict[str, Any]]:
    """The offsets of the objects that were read, by log."""
    logs = sorted({item.log for item in archived.slices})
    found = []
    for log in logs:
        ranges = [item.range for item in archived.slices if item.log == log]
        start, end = min(item.start for item in ranges), max(item.end for item in ranges)
        found.append({**asdict(log), "start": start, "end": end, "objects": len(ranges)})
    return found


def _topic(output: Output) -> dict[str, Any]:
    return {
        "topic": output.topic,
        "incomplete": output.incomplete,
        "partitions": [
            {
                "partition": item.log.partition,
                "start": item.end if item.range is None else item.range.start,
                "end": item.end,
                "log_start": item.log_start,
                "open_transaction": item.open_transaction,
            }
            for item in output.readings
        ],
    }
