"""Offsets that retention deleted before they were archived: found by comparing positions, not from missing rows."""

from collections.abc import Mapping

from tidemark.archive.manifests import Ranges
from tidemark.connections.kafka import KafkaConnection
from tidemark.core.errors import IncompleteError
from tidemark.core.offsets import OffsetRange, TopicPartition, range_or_none
from tidemark.kafka.positions import watermarks

RangeOfLog = dict[TopicPartition, OffsetRange]


def log_starts(kafka: KafkaConnection, logs: Ranges) -> dict[TopicPartition, int]:
    """The first offset Kafka holds of each log, now."""
    return {mark.log: mark.log_start for mark in watermarks(kafka, tuple(logs))}


def split_at(starts: Mapping[TopicPartition, int], ranges: Ranges) -> tuple[RangeOfLog, RangeOfLog]:
    """The parts of the ranges that Kafka still holds, and the lost parts. A log without such a part is left out."""
    held: RangeOfLog = {}
    lost: RangeOfLog = {}
    for log, item in ranges.items():
        boundary = min(max(item.start, starts[log]), item.end)
        for side, part in ((lost, range_or_none(item.start, boundary)), (held, range_or_none(boundary, item.end))):
            if part is not None:
                side[log] = part
    return held, lost


def require_held(
    position: Mapping[int, int], logs: tuple[TopicPartition, ...], kafka: KafkaConnection, *, allow_loss: bool
) -> None:
    """Raise IncompleteError unless Kafka holds every offset from the position on.

    With ``allow_loss`` the position must only not be past the log's end. A partition without a position is new and
    read from offset 0.
    """
    for mark in watermarks(kafka, logs):
        wanted = position.get(mark.log.partition, 0)
        if wanted <= mark.high_watermark and (allow_loss or mark.log_start <= wanted):
            continue
        lost = f"[{wanted}, {mark.log_start})" if wanted < mark.log_start else f"a log that ends before {wanted}"
        raise IncompleteError(
            "Kafka no longer holds what is to be archived next",
            expected=f"offset {wanted} inside the log",
            found=f"[{mark.log_start}, {mark.high_watermark}), so {lost} is lost",
            where=f"{mark.log}, topic id {mark.log.topic_id}",
            hint="Delete the archive's checkpoint to continue from the log's start"
            + (", or set archive.on_loss to continue" if wanted < mark.log_start else "")
            + "; reconcile runs report the loss",
        )
