"""Ends and leader epochs of a topic's logs, in one request per broker."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # in its docs

from tidemark.connections.kafka import KafkaConnection
from tidemark.core.offsets import TopicPartition
from tidemark.kafka.failures import kafka_errors, reporting
from tidemark.kafka.positions import repeat_while_leaders_change
from tidemark.kafka.topics import TIMEOUT_S, admin_client


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    """A log's end: the offset after its last record that all its replicas have, and the epoch of its leader.

    The epoch rises with each new leader. It is None from brokers that do not report it.
    """

    offset: int
    leader_epoch: int | None


class LogEnds:
    """Asks for the ends of logs. It keeps its connection, so a request takes a few milliseconds."""

    def __init__(self, kafka: KafkaConnection) -> None:
        self._kafka = kafka
        self._client: AdminClient | None = None

    def ask(self, logs: Iterable[TopicPartition]) -> Mapping[TopicPartition, LogEnd]:
        """The end of each log. Raises ServiceError if a log has no leader for 20 s."""
        by_partition = {KafkaPartition(log.topic, log.partition): log for log in logs}
        if not by_partition:
            return {}

        def ask() -> dict[TopicPartition, LogEnd]:
            # After an error a new client: an older one may repeat the epoch of a former leader for ever.
            client, self._client = self._client or admin_client(self._kafka), None
            wanted = {partition: OffsetSpec.latest() for partition in by_partition}  # type: ignore[no-untyped-call]
            with reporting(client):
                answers = client.list_offsets(wanted, request_timeout=TIMEOUT_S)
                found = {partition: answer.result(timeout=TIMEOUT_S + 5) for partition, answer in answers.items()}
            self._client = client
            return {
                by_partition[partition]: LogEnd(offset=item.offset, leader_epoch=item.leader_epoch)
                for partition, item in found.items()
            }

        with kafka_errors("Kafka could not return the ends of logs", str(self._kafka)):
            return repeat_while_leaders_change(ask)
