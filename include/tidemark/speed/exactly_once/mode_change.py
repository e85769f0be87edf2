"""A checkpoint remembers how its batches were delivered, so that a changed ``speed.delivery`` goes on safely.

To exactly once: whatever the checkpoint holds to be done was delivered, so that each log's marker is put where the next
batch starts. What at-least-once delivery began of that batch is delivered again, as that mode has it; from there on
each record comes once. To at least once: nothing is to be done; the markers stay behind, and the way back sets them.
"""

import json
from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from tidemark.core.errors import FormatError, ServiceError
from tidemark.core.manifest import canonical_json
from tidemark.core.offsets import TopicPartition
from tidemark.spark.checkpoint import Checkpoint
from tidemark.spark.streaming import log_event
from tidemark.speed.exactly_once.marker import Sink, marker_reader

_MODE = "delivery.json"


def take_over(checkpoint: Checkpoint, delivery: str, logs: Sequence[TopicPartition], sink: Sink, stream: str) -> None:
    """Make the checkpoint one of ``delivery``; a crash on the way leaves the rest to the next start.

    Raises ServiceError when Kafka or S3 refuses.
    """
    key = checkpoint.prefix + _MODE
    position = checkpoint.position()
    before = _mode(checkpoint.store.get(key), where=key)
    if before is None:
        # Checkpoints older than this file are at-least-once ones.
        before = delivery if position is None else "at_least_once"
    if before != delivery:
        if delivery == "exactly_once":
            _set_markers(position or {}, logs, sink)
        log_event("delivery changed", layer="speed", stream=stream, before=before, after=delivery, positions=position)
    checkpoint.store.put(key, canonical_json({"delivery": delivery}), content_type="application/json")


def _mode(body: bytes | None, *, where: str) -> str | None:
    if body is None:
        return None
    try:
        return str(json.loads(body)["delivery"])
    except (ValueError, TypeError, KeyError) as error:
        raise FormatError(
            "not a checkpoint's delivery", expected='{"delivery": …}', found=body[:200], where=where
        ) from error


def _set_markers(position: Mapping[int, int], logs: Sequence[TopicPartition], sink: Sink) -> None:
    """Each log's marker at its position, over whatever marker there is.

    By the task's own transactional id: what an earlier exactly-once task may still have under way can't move it later.
    """
    for log in logs:
        if log.partition in position:
            _set_marker(log, position[log.partition], sink)


def _set_marker(log: TopicPartition, position: int, sink: Sink) -> None:
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
        raise ServiceError("Kafka did not take a marker", found=error.args[0], where=where) from error
