"""Whether a topic is still the one that a stream reads. Spark only knows the topic's name."""

import time
from contextlib import suppress

from tidemark.core.errors import ConflictError, ServiceError
from tidemark.core.offsets import TopicPartition
from tidemark.kafka.topics import describe_topic
from tidemark.settings import Settings

CHECK_S = 10.0


def same_logs(settings: Settings, topic: str, topic_id: str) -> tuple[TopicPartition, ...]:
    """The source's logs. Raises ConflictError if the topic was recreated while the stream ran."""
    logs = describe_topic(settings.kafka, topic)
    if logs[0].topic_id != topic_id:
        raise ConflictError(
            "the topic was recreated while the stream ran",
            expected=f"topic id {topic_id}",
            found=f"topic id {logs[0].topic_id}",
            where=topic,
            hint="Restart the stream: it names the checkpoint to remove",
        )
    return logs


class TopicPoll:
    """Checks a topic every ``CHECK_S`` while the stream's main thread waits. Call it about every second.

    Batches check it too, but none comes before a recreated topic is longer than the first one was. It raises as
    ``same_logs``. If Kafka does not answer, the next check decides.
    """

    def __init__(self, settings: Settings, topic: str, topic_id: str) -> None:
        self._settings, self._topic, self._topic_id = settings, topic, topic_id
        self._checked_at = time.monotonic()

    def __call__(self) -> None:
        if time.monotonic() - self._checked_at >= CHECK_S:
            self._checked_at = time.monotonic()
            with suppress(ServiceError):
                same_logs(self._settings, self._topic, self._topic_id)
