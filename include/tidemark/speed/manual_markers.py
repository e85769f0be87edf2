"""Markers that a person reads and sets: after one expired, or when a deployment gets another name.

Kafka's own tool cannot set them: it replaces an offset after the end of a topic by that end, and the marker topic is
empty.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tidemark.core.errors import PositionError
from tidemark.definitions.stream import Stream
from tidemark.kafka.positions import Watermarks, watermarks
from tidemark.kafka.topics import describe_topic
from tidemark.settings import Settings
from tidemark.speed.exactly_once.batches import sink_of
from tidemark.speed.exactly_once.marker import Sink, commit_markers, delivered_until, ensure_markers, fence
from tidemark.speed.replay.replay import replay_sink


@dataclass(frozen=True, kw_only=True)
class ManualMarkers:
    """The markers of one deployment's stream, or of its replay; ``logs`` are those that they count for."""

    sink: Sink
    logs: tuple[Watermarks, ...]

    @classmethod
    def open(cls, stream: Stream, settings: Settings, *, replay: bool) -> "ManualMarkers":
        """Creates the marker topic if it does not exist."""
        kafka = settings.speed_kafka if replay else settings.kafka
        logs = describe_topic(kafka, stream.speed.dead_letter_topic if replay else stream.topic)
        sink = (replay_sink if replay else sink_of)(stream, settings, logs[0].topic_id)
        ensure_markers(sink.kafka, sink.marker_topic, len(logs))
        return cls(sink=sink, logs=watermarks(kafka, logs))

    def read(self) -> dict[int, int]:
        """The next offset to deliver by partition; partitions without a marker are left out."""
        return delivered_until(self.sink, [item.log for item in self.logs])

    def set(self, positions: Mapping[int, int]) -> None:
        """Set these markers by partition, all or none. A running task of the log is fenced, and reads the new marker.

        Raises PositionError for an offset after its log.
        """
        known = {item.log.partition: item for item in self.logs}
        for partition, position in positions.items():
            found = known.get(partition)
            if found is None or not 0 <= position <= found.high_watermark:
                raise PositionError(
                    "a marker is not in its log",
                    expected=", ".join(
                        f"partition {number}: 0 to {item.high_watermark}" for number, item in known.items()
                    ),
                    found=f"partition {partition}: {position}",
                    where=self.logs[0].log.topic,
                )
        for partition in positions:
            producer = fence(self.sink, known[partition].log)
        if positions:
            commit_markers(producer, self.sink, positions)
