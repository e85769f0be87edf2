"""Sends the demo's events to Kafka and keeps the offset of each."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException, Producer

from tidemark.connections.kafka import KafkaConnection
from tidemark.core.errors import ServiceError
from tidemark.demo.source import PARTITIONS, Event
from tidemark.kafka.topics import ensure_topic

# The events have old timestamps: the default retention would delete them at once.
NO_RETENTION = {"retention.ms": "-1"}
FLUSH_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """An event that Kafka acknowledged, and its place."""

    event: Event
    partition: int
    offset: int


class EventLog:
    """The demo's source topic. ``sent`` lists every acknowledged event, in order of arrival."""

    def __init__(self, kafka: KafkaConnection, topic: str) -> None:
        self.topic = topic
        self.sent: list[Sent] = []
        self._kafka = kafka
        ensure_topic(kafka, topic, partitions=PARTITIONS, config=NO_RETENTION)
        self._producer = Producer(
            kafka.client(
                {
                    "acks": "all",
                    "enable.idempotence": True,
                    "delivery.timeout.ms": FLUSH_S * 1000,
                }
            )
        )

    def produce(self, events: Sequence[Event], check: Callable[[], None]) -> None:
        """Send the events and wait until each is acknowledged; call ``check`` while waiting."""
        results: dict[int, Sent | Exception] = {}
        for number, event in enumerate(events):
            self._producer.produce(
                self.topic,
                key=event.key.encode(),
                value=event.value,
                partition=event.partition,
                timestamp=event.timestamp_ms,
                on_delivery=_keep(results, number, event),
            )
            self._producer.poll(0)
        deadline = time.monotonic() + FLUSH_S
        while self._producer.flush(0.5) > 0 and time.monotonic() < deadline:
            check()
        for number in range(len(events)):
            result = results.get(number, TimeoutError(f"not acknowledged within {FLUSH_S} s"))
            if isinstance(result, Exception):
                raise ServiceError("an event could not be sent", found=result, where=f"{self.topic} at {self._kafka}")
            self.sent.append(result)

    def ends(self) -> dict[int, int]:
        """The offset after the last event sent, by partition."""
        ends = dict.fromkeys(range(PARTITIONS), 0)
        for item in self.sent:
            ends[item.partition] = max(ends[item.partition], item.offset + 1)
        return ends


def _keep(results: dict[int, Sent | Exception], number: int, event: Event) -> Callable[[Any, Any], None]:
    def keep(error: Any, message: Any) -> None:
        if error is not None:
            results[number] = KafkaException(error)
        else:
            results[number] = Sent(event=event, partition=message.partition(), offset=message.offset())

    return keep
