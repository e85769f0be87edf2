"""The change of delivery mode: a checkpoint stores how its batches were delivered, so ``speed.delivery`` may change.

To exactly once: every batch in the checkpoint was delivered, so each log's marker is set to the start of the next
batch. Records of that batch that at-least-once delivery already wrote are repeated; after that each record comes once.
To at least once: there is nothing to do. The markers stay where they are, and a change back sets them again.
"""

import json
from collections.abc import Sequence

from confluent_kafka import KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from tidemark.core.errors import FormatError, ServiceError
from tidemark.core.manifest import canonical_json
from tidemark.core.offsets import TopicPartition
from tidemark.spark.checkpoint import Checkpoint
from tidemark.spark.streaming import log_event
from tidemark.speed.exactly_once.marker import Sink, marker_reader

_MODE = "delivery.json"


def change_delivery_mode(
    checkpoint: Checkpoint, delivery: str, logs: Sequence[TopicPartition], sink: Sink, stream: str
) -> None:
    """Set the checkpoint's delivery mode. After a crash, the next start repeats this."""
    key = checkpoint.prefix + _MODE
    position = checkpoint.position()
    before = _mode(checkpoint.store.get(key), where=key)
    if before is not None and before != delivery:
        if delivery == "exactly_once":
            for log in logs:
                if position is not None and log.partition in position:
                    _set_marker(log, position[log.partition], sink)
        log_event("delivery changed", layer="speed", stream=stream, before=before, after=delivery, positions=position)
    checkpoint.store.put(key, canonical_json({"delivery": delivery}), content_type="application/json")


def _mode(body: bytes | None, *, where: str) -> str | None:
    if body is None:
        return None
    try:
        return str(json.loads(body)["delivery"])
    except (ValueError, TypeError, KeyError) as error:
        raise FormatError(
            "a checkpoint's delivery mode does not parse", expected='{"delivery": …}', found=body[:200], where=where
        ) from error


def _set_marker(log: TopicPartition, position: int, sink: Sink) -> None:
    """Set a log's marker. The task's transactional id fences an earlier exactly-once task, which could move it."""
    producer = Producer(
        {
            "bootstrap.servers": sink.bootstrap,
            "transactional.id": sink.transactional_id(log),
            "transaction.timeout.ms": int(sink.timeout_s * 1000),
            "log_level": 3,
        }
    )
    try:
        with marker_reader(sink) as consumer:
            producer.init_transactions(sink.timeout_s)
            producer.begin_transaction()
            offsets = [KafkaPartition(sink.marker_topic, log.partition, position)]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), sink.timeout_s)
            producer.commit_transaction(sink.timeout_s)
    except KafkaException as error:
        where = f"{log}, group {sink.group} at {sink.bootstrap}"
        raise ServiceError("Kafka refused a marker", found=error.args[0], where=where) from error
