"""What retention took before it was archived: of which time it was, and whether a seal has told of it before.

The records are gone, so their time is bounded by their neighbours: the nearest record in front, which is archived if
there is one, and the nearest behind, which is archived or still in Kafka. Of an archived one the manifests tell: the
latest time of the object in front and the earliest of the object behind, which in a log in the order of its timestamps
are those of the very neighbours.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tidemark.core.days import day_start, micros
from tidemark.core.errors import ServiceError
from tidemark.core.loss_text import loss_text
from tidemark.core.manifest import DataFile, parse_manifest
from tidemark.core.offsets import OffsetSet, TopicPartition, subtract
from tidemark.core.plan import LogPlan, Neighbours, Plan, Target, Used
from tidemark.core.seal import Seal
from tidemark.core.targets import first_requested, reach_back, without_known_start
from tidemark.kafka.positions import FirstRecord, first_records
from tidemark.kafka.topics import logs_of
from tidemark.run import Run

_logger = logging.getLogger(__name__)


def bound_losses(run: Run, plan: Plan) -> Plan:
    """The plan with the neighbours of every lost range, each of which is logged as well."""
    logs = tuple(_bound_log(run, item) if any(gap.kind == "lost" for gap in item.gaps) else item for item in plan.logs)
    for item in logs:
        for gap in item.gaps:
            if gap.kind == "lost":
                _logger.warning("%s", loss_text(item.target.log, gap, run.stream.zone))
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
    return _neighbours(None, _behind(run, log, item.used, start), _held_behind(run, log, start)).after_us


def new_losses(item: LogPlan, seals: Iterable[Seal]) -> OffsetSet:
    """The lost offsets of a log that no seal has told of."""
    lost = [gap.range for gap in item.gaps if gap.kind == "lost"]
    sealed = (log for seal in seals for log in seal.logs if log.log == item.target.log)
    return subtract(lost, [gap.range for log in sealed for gap in log.gaps])


def _bound_log(run: Run, item: LogPlan) -> LogPlan:
    log = item.target.log
    lost = [gap.range for gap in item.gaps if gap.kind == "lost"]
    held = _held_behind(run, log, lost[-1].end)
    gaps = tuple(
        gap
        if gap.kind != "lost"
        else replace(
            gap,
            neighbours=_neighbours(
                _in_front(run, log, item.used, gap.range.start), _behind(run, log, item.used, gap.range.end), held
            ),
        )
        for gap in item.gaps
    )
    return replace(item, gaps=gaps)


def _neighbours(before: DataFile | None, behind: DataFile | None, held: FirstRecord | None) -> Neighbours:
    stamp = None if behind is None else behind.min_timestamp_us
    if held is not None and held.timestamp_ms is not None and (behind is None or held.offset < behind.first_offset):
        stamp = held.timestamp_ms * 1000
    return Neighbours(before_us=None if before is None else before.max_timestamp_us, after_us=stamp)


def _held_behind(run: Run, log: TopicPartition, offset: int) -> FirstRecord | None:
    """The first record at or behind an offset that Kafka still holds of this very log; None where it does not tell."""
    bootstrap = run.settings.kafka_bootstrap
    try:
        if log not in logs_of(bootstrap, log.topic):
            return None
        return first_records(bootstrap, {log: offset}).get(log)
    except ServiceError as error:
        _logger.warning("the time of what was lost is bounded by the archive alone: %s", error)
        return None


def _in_front(run: Run, log: TopicPartition, uses: Sequence[Used], offset: int) -> DataFile | None:
    """The object with the nearest archived row in front of an offset."""
    for used in reversed([item for item in uses if item.range.end <= offset]):
        files = _files(run, log, used, used.last)
        if files:
            return max(files, key=lambda item: item.last_offset)
    return None


def _behind(run: Run, log: TopicPartition, uses: Sequence[Used], offset: int) -> DataFile | None:
    """The object with the nearest archived row at or behind an offset."""
    for used in (item for item in uses if item.range.start >= offset):
        files = _files(run, log, used, used.batch)
        if files:
            return min(files, key=lambda item: item.first_offset)
    return None


def _files(run: Run, log: TopicPartition, used: Used, batch: int) -> list[DataFile]:
    """One batch's objects with rows inside a used range; none where its manifest is gone."""
    key = run.layout.manifest_key(used.writer, batch)
    body = run.store.get(key)
    if body is None:
        return []
    inside = (item for item in parse_manifest(body, where=key).files if item.log == log)
    return [item for item in inside if item.first_offset < used.range.end and item.last_offset >= used.range.start]
