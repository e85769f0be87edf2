"""When the records were written that retention took before they were archived, and which of them no seal records.

Those records can no longer be read, so their time is bounded by their neighbours: the nearest record before, if one is
archived, and the nearest record after, which is archived or still in Kafka. Of an archived neighbour only its object's
earliest and latest timestamp are known. In a log in the order of its timestamps these are the neighbour's own.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tidemark.core.days import day_start, micros
from tidemark.core.errors import ServiceError
from tidemark.core.loss_text import loss_text
from tidemark.core.manifest import DataFile, parse_manifest
from tidemark.core.offsets import OffsetSet, TopicPartition, subtract
from tidemark.core.plan import LogPlan, Neighbours, Plan, Target, Truncation, Used
from tidemark.core.seal import Seal
from tidemark.core.targets import first_requested, reach_back, without_known_start
from tidemark.kafka.positions import FirstRecord, first_records
from tidemark.kafka.topics import logs_of
from tidemark.logs import log_range
from tidemark.run import Run

_logger = logging.getLogger(__name__)


def bound_losses(run: Run, plan: Plan) -> Plan:
    """The plan with the neighbours of every lost range, each of which is logged as well."""
    logs = tuple(_bound_log(run, item) if any(gap.kind == "lost" for gap in item.gaps) else item for item in plan.logs)
    for item in logs:
        for gap in item.gaps:
            if gap.kind == "lost":
                text = loss_text(item.target.log, gap, run.stream.zone)
                _logger.warning("%s", text, extra=log_range(item.target.log, gap.range))
    return replace(plan, logs=logs)


def find_earlier_losses(run: Run, plan: Plan, seals: Iterable[Seal]) -> tuple[Target, ...]:
    """The plan's targets, from offset 0 where retention may have taken records of a requested day before the first
    known one (``tidemark.core.targets.reach_back``)."""
    logs = without_known_start(plan, seals)
    first = first_requested(plan)
    if first is None or not logs:
        return tuple(item.target for item in plan.logs)
    found = {item.target.log: _first_record_us(run, item) for item in logs}
    return reach_back(plan, found, micros(day_start(first, run.stream.zone)))


def _first_record_us(run: Run, item: LogPlan) -> int | None:
    """The timestamp of the first record that is known of a log, in µs since the epoch; None without one."""
    log, start = item.target.log, item.target.start
    return _neighbours(None, _archived_after(run, log, item.used, start), _in_kafka(run, log, start)).after_us


def new_losses(item: LogPlan, seals: Iterable[Seal]) -> OffsetSet:
    """The lost offsets of a log that no seal records."""
    lost = [gap.range for gap in item.gaps if gap.kind == "lost"]
    sealed = (log for seal in seals for log in seal.logs if log.log == item.target.log)
    return subtract(lost, [gap.range for log in sealed for gap in log.gaps])


def new_truncations(plan: Plan, seals: Iterable[Seal]) -> tuple[Truncation, ...]:
    """What logs have lost from their ends, and no seal records. A run without days to seal can't record it either."""
    if not plan.days:
        return ()
    sealed = {item for seal in seals for item in seal.truncated}
    return tuple(lost for item in plan.logs for lost in item.target.truncated if lost not in sealed)


def _bound_log(run: Run, item: LogPlan) -> LogPlan:
    log = item.target.log
    lost = [gap.range for gap in item.gaps if gap.kind == "lost"]
    in_kafka = _in_kafka(run, log, lost[-1].end)
    gaps = []
    for gap in item.gaps:
        if gap.kind == "lost":
            before = _archived_before(run, log, item.used, gap.range.start)
            after = _archived_after(run, log, item.used, gap.range.end)
            gaps.append(replace(gap, neighbours=_neighbours(before, after, in_kafka)))
        else:
            gaps.append(gap)
    return replace(item, gaps=tuple(gaps))


def _neighbours(before: DataFile | None, after: DataFile | None, kept: FirstRecord | None) -> Neighbours:
    after_us = None if after is None else after.min_timestamp_us
    if kept is not None and kept.timestamp_ms is not None and (after is None or kept.offset < after.first_offset):
        after_us = kept.timestamp_ms * 1000
    return Neighbours(before_us=None if before is None else before.max_timestamp_us, after_us=after_us)


def _in_kafka(run: Run, log: TopicPartition, offset: int) -> FirstRecord | None:
    """The log's first record at or after an offset that Kafka still holds; None where Kafka does not answer."""
    kafka = run.settings.kafka
    try:
        if log not in logs_of(kafka, log.topic):
            return None
        return first_records(kafka, {log: offset}).get(log)
    except ServiceError as error:
        _logger.warning("the time of what was lost is bounded by the archive alone: %s", error)
        return None


def _archived_before(run: Run, log: TopicPartition, uses: Sequence[Used], offset: int) -> DataFile | None:
    """The object with the nearest archived row before an offset."""
    for used in reversed([item for item in uses if item.range.end <= offset]):
        files = _files(run, log, used, used.last)
        if files:
            return max(files, key=lambda item: item.last_offset)
    return None


def _archived_after(run: Run, log: TopicPartition, uses: Sequence[Used], offset: int) -> DataFile | None:
    """The object with the nearest archived row at or after an offset."""
    for used in (item for item in uses if item.range.start >= offset):
        files = _files(run, log, used, used.batch)
        if files:
            return min(files, key=lambda item: item.first_offset)
    return None


def _files(run: Run, log: TopicPartition, used: Used, batch: int) -> list[DataFile]:
    """One batch's objects with rows inside a used range; none where its manifest is missing."""
    key = run.layout.manifest_key(used.writer, batch)
    body = run.store.get(key)
    if body is None:
        return []
    inside = (item for item in parse_manifest(body, where=key).files if item.log == log)
    return [item for item in inside if item.first_offset < used.range.end and item.last_offset >= used.range.start]
