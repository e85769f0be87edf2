"""A topic in Kafka: its identity, its settings, and its creation."""

import time
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]  # in its docs
from confluent_kafka.cimpl import NewTopic  # where its stub is

from tidemark.connections.kafka import KafkaConnection
from tidemark.core.errors import ServiceError
from tidemark.core.offsets import TopicPartition
from tidemark.kafka.failures import kafka_errors, reporting

TIMEOUT_S = 20

# librdkafka writes ids in the base64 alphabet that Kafka itself does not use.
_URL_SAFE = str.maketrans("+/", "-_")


def describe_topic(kafka: KafkaConnection, topic: str) -> tuple[TopicPartition, ...]:
    """The topic's logs by partition number, with the topic id as Kafka's tools write it. An error if it is missing."""
    found = logs_of(kafka, topic)
    if not found:
        hint = "Create it, or correct the name in the stream's definition. If it exists, grant the user DESCRIBE on it"
        raise ServiceError("Kafka has no such topic", found=topic, where=str(kafka), hint=hint)
    return found


def logs_of(kafka: KafkaConnection, topic: str) -> tuple[TopicPartition, ...]:
    """As ``describe_topic``; empty if the topic does not exist."""
    found = _described(kafka, topic)
    if found is None:
        return ()
    topic_id = str(found.topic_id).translate(_URL_SAFE)
    return tuple(sorted(TopicPartition(topic=topic, topic_id=topic_id, partition=item.id) for item in found.partitions))


def _described(kafka: KafkaConnection, topic: str) -> Any:
    """The library's ``TopicDescription``, None if there is no such topic.

    It is untyped because its leaders may be None against their type.
    """
    with kafka_errors("Kafka could not describe a topic", f"{topic} at {kafka}"):
        admin = admin_client(kafka)  # a garbage-collected client drops its pending futures
        try:
            with reporting(admin):
                future = admin.describe_topics(TopicCollection([topic]), request_timeout=TIMEOUT_S)[topic]
                return future.result(timeout=TIMEOUT_S + 5)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise


def ensure_topic(kafka: KafkaConnection, topic: str, *, partitions: int, config: dict[str, str] | None = None) -> bool:
    """Create the topic and return when every broker knows it; False if it exists.

    It gets three replicas, or fewer if there are fewer brokers. A majority of them must have a record before it counts
    as delivered. With two brokers that is both: while one is down, records wait in the source instead of being lost.
    """
    with (
        kafka_errors("Kafka could not create a topic", f"{topic} at {kafka}"),
        reporting(admin := admin_client(kafka)),
    ):
        known = admin.list_topics(timeout=TIMEOUT_S)
        if topic in known.topics:  # without a request, for which a user of existing topics needs no right
            return False
        replicas = min(len(known.brokers), 3)
        settings = {
            "unclean.leader.election.enable": "false",
            "min.insync.replicas": str(replicas // 2 + 1),
            **(config or {}),
        }
        wanted = NewTopic(topic, num_partitions=partitions, replication_factor=replicas, config=settings)
        try:
            admin.create_topics([wanted], request_timeout=TIMEOUT_S)[topic].result(timeout=TIMEOUT_S + 5)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise
        for broker in known.brokers.values():
            _await_known(kafka.at(f"{broker.host}:{broker.port}"), topic, partitions)
    return True


def _await_known(broker: KafkaConnection, topic: str, partitions: int) -> None:
    """Wait until this broker knows a new topic's leaders: brokers learn of it one after the other."""
    deadline = time.monotonic() + TIMEOUT_S
    admin = admin_client(broker)  # its first request goes to its only broker
    while time.monotonic() < deadline:
        found = admin.list_topics(timeout=TIMEOUT_S).topics.get(topic)
        if found is not None and sum(item.leader >= 0 for item in found.partitions.values()) == partitions:
            return
        time.sleep(0.05)


def copies(kafka: KafkaConnection, topic: str) -> int | None:
    """The lowest number of replicas of any partition of the topic; None if there is no such topic."""
    found = _described(kafka, topic)
    return None if found is None else min(len(item.replicas) for item in found.partitions)


def unwritable(kafka: KafkaConnection, topic: str) -> tuple[str, ...]:
    """Why Kafka acknowledges no records for the topic now: a phrase per partition that lacks brokers."""
    found = _described(kafka, topic)
    if found is None:
        return (f"{topic} does not exist",)
    wanted = int(topic_config(kafka, topic)["min.insync.replicas"])
    short = []
    for item in found.partitions:
        if item.leader is None or item.leader.id < 0:
            short.append(f"{topic}-{item.id} has no leader")
        elif len(item.isr) < min(wanted, len(item.replicas)):
            short.append(f"{topic}-{item.id} has {len(item.isr)} replicas in sync, min.insync.replicas is {wanted}")
    return tuple(short)


def broker_configs(kafka: KafkaConnection) -> tuple[dict[str, str], ...]:
    """The settings of every running broker, without those that are unset; at least one broker.

    The user needs DESCRIBE_CONFIGS on the cluster.
    """
    with (
        kafka_errors("Kafka could not return the brokers' settings", str(kafka)),
        reporting(admin := admin_client(kafka)),
    ):
        brokers = admin.list_topics(timeout=TIMEOUT_S).brokers
        configs = [_config(admin, ConfigResource.Type.BROKER, str(broker)) for broker in brokers]
    return tuple({name: value for name, value in config.items() if value is not None} for config in configs)


def topic_config(kafka: KafkaConnection, topic: str) -> dict[str, str]:
    """The topic's effective settings, with the broker's defaults. The user needs DESCRIBE_CONFIGS on the topic."""
    with (
        kafka_errors("Kafka could not return a topic's settings", f"{topic} at {kafka}"),
        reporting(admin := admin_client(kafka)),
    ):
        return _config(admin, ConfigResource.Type.TOPIC, topic)


def _config(admin: AdminClient, kind: Any, name: str) -> dict[str, Any]:
    """The values as Kafka writes them, None for an unset one."""
    resource = ConfigResource(kind, name)
    found = admin.describe_configs([resource], request_timeout=TIMEOUT_S)[resource].result(timeout=TIMEOUT_S + 5)
    return {key: entry.value for key, entry in found.items()}


def require_kafka(kafka: KafkaConnection) -> None:
    """Raise ServiceError, within 20 s, if no broker answers or the user is refused."""
    with kafka_errors("Kafka does not answer", str(kafka)), reporting(admin := admin_client(kafka)):
        admin.list_topics(timeout=TIMEOUT_S)


def admin_client(kafka: KafkaConnection) -> AdminClient:
    """A client for topics and settings. A garbage-collected one drops its pending requests."""
    return AdminClient(kafka.client())
