"""Which operations Kafka permits this user, without doing one of them.

Kafka reports them beside the description of a topic, a group or the cluster; else a request is made that Kafka only
validates, or that changes nothing.
"""

import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]  # in its docs
from confluent_kafka.cimpl import NewTopic  # where its stub is

from tidemark.connections.kafka import KafkaConnection
from tidemark.core.errors import ServiceError
from tidemark.kafka.acls import Operation, Resource
from tidemark.kafka.failures import NOT_PERMITTED, kafka_errors
from tidemark.kafka.topics import admin_client, broker_configs, topic_config

T = TypeVar("T")
TIMEOUT_S = 8
# A coordinator that is being elected, or whose topic is being created by the first question, answers so.
_PASSING = frozenset(
    {
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError._TIMED_OUT,  # noqa: SLF001 - its name in the library
    }
)
_NAMES: dict[AclOperation, Operation] = {
    AclOperation.READ: "Read",
    AclOperation.WRITE: "Write",
    AclOperation.CREATE: "Create",
    AclOperation.ALTER: "Alter",
    AclOperation.DESCRIBE: "Describe",
    AclOperation.DESCRIBE_CONFIGS: "DescribeConfigs",
}

# A producer writes a refusal to its log, too.
_SILENT = logging.getLogger(f"{__name__}.refusals")
_SILENT.setLevel(logging.CRITICAL + 1)


class NoTopicError(Exception):
    """The topic does not exist, and the user may know that."""


def permitted(kafka: KafkaConnection, resource: Resource, name: str, wanted: frozenset[Operation]) -> set[Operation]:
    """Those of the wanted operations that are permitted.

    Raises NoTopicError for a topic that does not exist, ServiceError if Kafka does not answer.
    """
    try:
        with kafka_errors("Kafka could not report permissions", f"{resource} {name} at {kafka}"):
            return set(wanted & _ASKED[resource](kafka, name, wanted))
    except ServiceError as error:
        if refused(error):
            return set()
        raise


def refused(error: ServiceError) -> bool:
    """Whether Kafka refused the request for lack of a permission."""
    return _code(error) in NOT_PERMITTED


def _code(error: ServiceError) -> int | None:
    cause = error.__cause__
    return cause.args[0].code() if isinstance(cause, KafkaException) else None


def _topic(kafka: KafkaConnection, topic: str, wanted: frozenset[Operation]) -> set[Operation]:
    admin = admin_client(kafka)
    try:
        request = admin.describe_topics(
            TopicCollection([topic]), include_authorized_operations=True, request_timeout=TIMEOUT_S
        )
        return _operations(request[topic].result(timeout=TIMEOUT_S + 1))
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise NoTopicError from error
        if error.args[0].code() not in NOT_PERMITTED:
            raise
    # Without any operation that includes DESCRIBE, only these may still be permitted.
    tries: dict[Operation, Callable[[], object]] = {
        "DescribeConfigs": lambda: topic_config(kafka, topic),
        "Create": lambda: _validate(kafka, topic),
    }
    return {operation for operation, attempt in tries.items() if operation in wanted and _succeeds(attempt)}


def _succeeds(attempt: Callable[[], object]) -> bool:
    """Whether Kafka permits it."""
    try:
        attempt()
    except ServiceError as error:
        if refused(error):
            return False
        if _code(error) == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise NoTopicError from error
        raise
    return True


def may_create(kafka: KafkaConnection, topic: str) -> bool:
    """Whether the user may create the topic. Kafka only validates the request."""
    return _succeeds(lambda: _validate(kafka, topic))


def _validate(kafka: KafkaConnection, topic: str) -> None:
    admin = admin_client(kafka)
    wanted = NewTopic(topic, num_partitions=1, replication_factor=-1)
    with kafka_errors("Kafka could not validate a new topic", f"{topic} at {kafka}"):
        try:
            request = admin.create_topics([wanted], validate_only=True, request_timeout=TIMEOUT_S)
            request[topic].result(timeout=TIMEOUT_S + 1)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def _group(kafka: KafkaConnection, group: str, _: frozenset[Operation]) -> set[Operation]:
    admin = admin_client(kafka)

    def ask() -> set[Operation]:
        request = admin.describe_consumer_groups([group], include_authorized_operations=True, request_timeout=TIMEOUT_S)
        return _operations(request[group].result(timeout=TIMEOUT_S + 1))

    return _repeated(ask)


def _transactional_id(kafka: KafkaConnection, name: str, _: frozenset[Operation]) -> set[Operation]:
    """Only WRITE, by starting a producer that writes nothing. Kafka forgets its id after a week."""

    def ask() -> set[Operation]:
        Producer(kafka.client({"transactional.id": name, "logger": _SILENT})).init_transactions(TIMEOUT_S)
        return {"Write"}

    return _repeated(ask)


def _cluster(kafka: KafkaConnection, _: str, wanted: frozenset[Operation]) -> set[Operation]:
    """Without DESCRIBE on the cluster, Kafka does not report its operations."""
    found: set[Operation] = set()
    if "DescribeConfigs" in wanted and _succeeds(lambda: broker_configs(kafka)):
        found.add("DescribeConfigs")
    if wanted - {"DescribeConfigs"}:
        admin = admin_client(kafka)
        request = admin.describe_cluster(include_authorized_operations=True, request_timeout=TIMEOUT_S)
        found |= _operations(request.result(timeout=TIMEOUT_S + 1))
    return found


def _operations(found: Any) -> set[Operation]:
    return {_NAMES[item] for item in found.authorized_operations or () if item in _NAMES}


def _repeated(ask: Callable[[], T]) -> T:
    """The answer, asked for again while a coordinator is elected."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in _PASSING or time.monotonic() > deadline:
                raise
        time.sleep(0.1)


_Asked = Callable[[KafkaConnection, str, frozenset[Operation]], set[Operation]]
_ASKED = cast(
    "dict[Resource, _Asked]",
    {"topic": _topic, "group": _group, "transactional-id": _transactional_id, "cluster": _cluster},
)
