"""What retention took before it was archived: found by comparing positions, never guessed from missing rows."""

from collections.abc import Mapping

from tidemark.archive.manifests import Ranges
from tidemark.core.errors import IncompleteError
from tidemark.core.offsets import OffsetRange, TopicPartition, range_or_none
from tidemark.kafka.positions import watermarks

Held = dict[TopicPartition, OffsetRange]


def log_starts(bootstrap: str, logs: Ranges) -> dict[TopicPartition, int]:
    """The first offset Kafka holds of each log, now."""
    return {mark.log: mark.log_start for mark in watermarks(bootstrap, tuple(logs))}


def split_at(starts: Mapping[TopicPartition, int], ranges: Ranges) -> tuple[Held, Held]:
    """What Kafka holds of the ranges, and what it does not; a log of which it holds all or nothing is in one alone."""
    held: Held = {}
    lost: Held = {}
    for log, item in ranges.items():
        seam = min(max(item.start, starts[log]), item.end)
        for side, part in ((lost, range_or_none(item.start, seam)), (held, range_or_none(seam, item.end))):
            if part is not None:
                side[log] = part
    return held, lost


def require_held(
    position: Mapping[int, int], logs: tuple[TopicPartition, ...], bootstrap: str, *, continue_on_loss: bool
) -> None:
    """Kafka must hold everything from the position on. With ``continue_on_loss`` only the log's end is checked.

    A partition that the position does not have is new and read from offset 0. Raises IncompleteError.
    """
    for mark in watermarks(bootstrap, logs):
        wanted = position.get(mark.log.partition, 0)
        if wanted <= mark.high_watermark and (continue_on_loss or mark.log_start <= wanted):
            continue
        lost = f"[{wanted}, {mark.log_start})" if wanted < mark.log_start else f"a log that ends before {wanted}"
        raise IncompleteError(
            "Kafka no longer holds what is to be archived next",
            expected=f"offset {wanted} inside the log",
            found=f"[{mark.log_start}, {mark.high_watermark}), so {lost} is lost",
            where=f"{mark.log}, topic id {mark.log.topic_id}",
            hint="Delete the archive's checkpoint to go on from the log's start"
            + (", or set archive.on_loss to continue" if wanted < mark.log_start else "")
            + "; reconcile runs report the loss",
        )
