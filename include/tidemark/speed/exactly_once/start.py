"""The start of exactly-once delivery: each log gets a marker, and none ever moves backwards.

A checkpoint stores how its batches were delivered, so that ``speed.delivery`` may change. To exactly once: every batch
in the checkpoint was delivered, so each marker moves forwards to the start of the next batch. Records of that batch
that at-least-once delivery already wrote are repeated; after that each record comes once. To at least once: there is
nothing to do. The markers stay where they are, and a change back moves them.
"""

import json
from collections.abc import Mapping, Sequence

from tidemark.core.errors import FormatError, PositionError
from tidemark.core.manifest import canonical_json
from tidemark.core.markers import CheckpointPosition, MarkersAtStart, markers_at_start
from tidemark.definitions.stream import Stream
from tidemark.kafka.positions import Watermarks
from tidemark.spark.checkpoint import Checkpoint
from tidemark.spark.streaming import log_event
from tidemark.speed.exactly_once.marker import Sink, commit_markers, delivered_until, fence

NAMED_MAX = 5  # partitions in an error
_MODE = "delivery.json"


def set_delivery_mode(
    stream: Stream,
    checkpoint: Checkpoint,
    position: CheckpointPosition | None,
    log_ends: Sequence[Watermarks],
    sink: Sink,
) -> dict[int, int]:
    """Set the checkpoint's delivery mode to the stream's. After a crash, the next start repeats this.

    ``position`` is the checkpoint's, ``log_ends`` are the source's. Returns each log's marker by partition, none for
    at-least-once delivery. Raises PositionError if checkpoint and markers contradict each other.
    """
    key, delivery = checkpoint.prefix + _MODE, stream.speed.delivery
    before = _mode(checkpoint.store.get(key), where=key)
    markers = {}
    if delivery == "exactly_once":
        start = _Start(checkpoint, position, log_ends, sink, changed=before == "at_least_once")
        markers = start.set_markers()
    if before is not None and before != delivery:
        at = None if position is None else position.start
        log_event("delivery changed", layer="speed", stream=stream.name, before=before, after=delivery, positions=at)
    checkpoint.store.put(key, canonical_json({"delivery": delivery}), content_type="application/json")
    return markers


def _mode(body: bytes | None, *, where: str) -> str | None:
    if body is None:
        return None
    try:
        return str(json.loads(body)["delivery"])
    except (ValueError, TypeError, KeyError) as error:
        raise FormatError(
            "a checkpoint's delivery mode does not parse", expected='{"delivery": …}', found=body[:200], where=where
        ) from error


class _Start:
    """One start of an exactly-once stream; ``changed``: its checkpoint is from at-least-once delivery."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        position: CheckpointPosition | None,
        log_ends: Sequence[Watermarks],
        sink: Sink,
        *,
        changed: bool,
    ) -> None:
        self._checkpoint, self._position, self._sink, self._changed = checkpoint, position, sink, changed
        self._logs = [item.log for item in log_ends]
        self._ends = {item.log.partition: (item.log_start, item.high_watermark) for item in log_ends}

    def set_markers(self) -> dict[int, int]:
        """Create and move markers, all in one transaction: if only some were created, the others would seem expired."""
        markers = delivered_until(self._sink, self._logs)
        if not self._decide(markers).to_set:
            return markers
        for log in self._logs[1:]:
            fence(self._sink, log)
        producer = fence(self._sink, self._logs[0])
        markers = delivered_until(self._sink, self._logs)  # no earlier task can move them now
        to_set = self._decide(markers).to_set
        commit_markers(producer, self._sink, to_set)
        return {**markers, **to_set}

    def _decide(self, markers: Mapping[int, int]) -> MarkersAtStart:
        decided = markers_at_start(self._ends, markers, self._position, from_at_least_once=self._changed)
        if decided.missing:
            raise self._refusal(
                "a log has no marker, but records of it were delivered",
                decided.missing,
                markers,
                "The marker expired or was deleted, the live cluster was replaced, or TIDEMARK_DEPLOYMENT was changed."
                " If the name was changed, set it back. Otherwise find the greatest offset of the log in the header"
                " tidemark.source of both output topics, and set the marker to the next offset",
            )
        if decided.after:
            folder = f"s3://{self._checkpoint.store.bucket}/{self._checkpoint.prefix}"
            raise self._refusal(
                "a marker is after the checkpoint",
                decided.after,
                markers,
                "The checkpoint is an old copy from at-least-once delivery, and more was delivered since. Remove"
                f" {folder}, and the next start continues at the markers; to deliver records a second time, set the"
                " marker to the checkpoint's offset",
            )
        return decided

    def _refusal(self, problem: str, partitions: Sequence[int], markers: Mapping[int, int], hint: str) -> PositionError:
        log, sink = self._logs[0], self._sink
        at = {} if self._position is None else self._position.start
        return PositionError(
            f"exactly-once delivery cannot start: {problem}",
            expected=f"markers that fit the checkpoint, which is at {_format_offsets(partitions, at)}",
            found=f"markers at {_format_offsets(partitions, markers)}",
            where=f"source {log.topic} with topic id {log.topic_id}; group {sink.group} at {sink.kafka}",
            hint=f"{hint}: {sink.set_marker}",
        )


def _format_offsets(partitions: Sequence[int], offsets: Mapping[int, int]) -> str:
    texts = [f"{offsets.get(number, 'none')} of partition {number}" for number in partitions[:NAMED_MAX]]
    more = f", and {len(partitions) - NAMED_MAX} more" if len(partitions) > NAMED_MAX else ""
    return ", ".join(texts) + more
