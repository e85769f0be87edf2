"""The markers of an exactly-once stream at its start: kept, moved forwards, created, or against the checkpoint."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPosition:
    """Next offsets by partition: ``initial`` is the start of the first batch, ``start`` that of the next one.

    ``end`` is the same as ``start``, or the end of the next batch if it was interrupted.
    """

    initial: Mapping[int, int]
    start: Mapping[int, int]
    end: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkersAtStart:
    """``to_set``: the markers to write, by partition. None of them is before the present marker.

    The stream must not start if a partition is in one of the other two: those in ``missing`` have no marker although
    records were delivered, those in ``after`` have a marker after the checkpoint.
    """

    to_set: Mapping[int, int]
    missing: tuple[int, ...]
    after: tuple[int, ...]


def markers_at_start(
    logs: Mapping[int, tuple[int, int]],
    markers: Mapping[int, int],
    checkpoint: CheckpointPosition | None,
    *,
    from_at_least_once: bool,
) -> MarkersAtStart:
    """What to do with the markers so that each log has one, and delivery continues where it ended.

    ``logs``: start and end of each log in Kafka, by partition. Logs without a marker are not in ``markers``, partitions
    that were added later not in the ``checkpoint``, which is None before the first batch. ``from_at_least_once``: the
    checkpoint's batches were delivered at least once, and moved no marker.
    """
    to_set, missing, after = {}, [], []
    for partition, (log_start, log_end) in logs.items():
        marker = markers.get(partition)
        # A partition that was added later is read from offset 0.
        position = log_start if checkpoint is None else checkpoint.start.get(partition, 0)
        if checkpoint is None or from_at_least_once:
            # All markers of a topic are created together: one that is missing beside others has expired.
            expired = marker is None and bool(markers) and log_start < log_end
        else:
            expired = marker is None and position > checkpoint.initial.get(partition, 0)
        if expired:
            missing.append(partition)
        elif marker is None:
            to_set[partition] = position
        elif checkpoint is not None and from_at_least_once:
            if marker < position:
                to_set[partition] = position
            elif marker > checkpoint.end.get(partition, 0):
                after.append(partition)
    return MarkersAtStart(to_set=to_set, missing=tuple(missing), after=tuple(after))
