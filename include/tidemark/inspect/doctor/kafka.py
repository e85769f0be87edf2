"""Kafka: reached, authenticated, its brokers' own addresses, clocks."""

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from uuid import uuid4

import confluent_kafka
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Message, Producer
from confluent_kafka.cimpl import NewTopic  # where its stub is

from tidemark.connections.kafka import KafkaConnection
from tidemark.core.errors import ServiceError, TidemarkError
from tidemark.inspect.doctor.checkup import Checkup, Probe, failure
from tidemark.inspect.doctor.clock import clock_line
from tidemark.kafka.failures import kafka_errors
from tidemark.kafka.reach import ReachedCluster, reach
from tidemark.kafka.topics import admin_client

CONNECTION = "connection"
# Brokers of a large cluster that one check asks.
BROKERS_MAX = 30
_TIMEOUT_S = 6


def connection_checks(kafka: KafkaConnection, subject: str) -> Iterator[Probe]:
    """Checks of the cluster itself, for any role."""
    connected = (f"{subject}: {CONNECTION}",)
    yield Probe(subject=subject, name=CONNECTION, ask=partial(_connection, kafka))
    yield Probe(subject=subject, name="brokers", ask=partial(_brokers, kafka), needs=connected)
    yield Probe(subject=subject, name="clock", ask=partial(_clock, kafka), needs=connected)


def _connection(kafka: KafkaConnection, probe: Probe) -> Iterable[Checkup]:
    cluster = reach(kafka)
    library = f"librdkafka {confluent_kafka.libversion()[0]}"
    protocol = str(kafka.client().get("security.protocol", "PLAINTEXT")).upper()
    yield probe.ok(f"cluster {cluster.cluster_id} answers at {kafka} ({protocol}, {library})")
    if kafka.ignored:
        hint = "Remove them from the connection: Tidemark sets them itself"
        yield probe.warning(f"without effect: {', '.join(kafka.ignored)}", hint, name="ignored settings")


def _brokers(kafka: KafkaConnection, probe: Probe) -> Iterable[Checkup]:
    """Clients connect to the address that each broker advertises, which may be another than in the settings."""
    cluster: ReachedCluster = reach(kafka)
    asked = cluster.brokers[:BROKERS_MAX]
    with ThreadPoolExecutor(len(asked)) as pool:
        errors = dict(zip(asked, pool.map(partial(_error_at, kafka), asked), strict=True))
    for broker, error in errors.items():
        if error is not None:
            line = failure(probe, error, name=f"broker {broker}")
            hint = "The cluster advertises this address (advertised.listeners); this machine must reach it. "
            yield probe.failed(line.found, hint + line.hint, name=line.name)
    if not any(errors.values()):
        yield probe.ok(f"{len(asked)} of {len(cluster.brokers)} answer at the address that they advertise")


def _error_at(kafka: KafkaConnection, broker: str) -> TidemarkError | None:
    try:
        reach(kafka.at(broker))
    except TidemarkError as error:
        return error
    return None


def _clock(kafka: KafkaConnection, probe: Probe) -> Iterable[Checkup]:
    """The time that a broker gives to a record in a topic of the doctor's own, which is deleted afterwards."""
    try:
        with kafka_errors("Kafka could not give a record the time", str(kafka)):
            before, broker, after = _broker_time(kafka)
    except PermissionError:
        yield probe.skipped("only a user who may create and delete topics can ask for the brokers' time")
        return
    yield clock_line(probe, "Kafka", broker, before, after)


def _broker_time(kafka: KafkaConnection) -> tuple[float, float, float]:
    """This machine's time before, the broker's and this machine's afterwards, in seconds since the epoch."""
    topic = f"tidemark-doctor-{uuid4().hex[:8]}"
    admin = admin_client(kafka)

    def remove() -> None:
        admin.delete_topics([topic], request_timeout=_TIMEOUT_S)[topic].result(timeout=_TIMEOUT_S + 1)

    try:
        remove()  # it does not exist: the answer says whether it could be deleted
    except KafkaException as error:
        _require_permission(error)
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise
    wanted = NewTopic(topic, num_partitions=1, config={"message.timestamp.type": "LogAppendTime"})
    try:
        admin.create_topics([wanted], request_timeout=_TIMEOUT_S)[topic].result(timeout=_TIMEOUT_S + 1)
    except KafkaException as error:
        _require_permission(error)
        raise
    try:
        return _written(kafka, topic)
    finally:
        remove()


def _require_permission(error: KafkaException) -> None:
    if error.args[0].code() in {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}:
        raise PermissionError from error


def _written(kafka: KafkaConnection, topic: str) -> tuple[float, float, float]:
    reports: list[tuple[KafkaError | None, Message]] = []
    producer = Producer(kafka.client({"log_level": 0, "message.timeout.ms": _TIMEOUT_S * 1000, "linger.ms": 0}))
    for _ in range(2):  # the first record waits for connections
        before = time.time()
        producer.produce(topic, b"doctor", on_delivery=lambda error, message: reports.append((error, message)))
        producer.flush(_TIMEOUT_S)
        after = time.time()
    error, message = reports[-1] if reports else (None, None)
    if message is None:
        raise ServiceError("Kafka acknowledged no record", where=topic)
    if error is not None:
        _require_permission(KafkaException(error))
        raise KafkaException(error)
    kind, broker_ms = message.timestamp()
    if kind != TIMESTAMP_LOG_APPEND_TIME:
        raise ServiceError("Kafka gave no time to a record", where=topic)
    return before, broker_ms / 1000, after
