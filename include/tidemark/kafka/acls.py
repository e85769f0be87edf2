"""The least that each role may do in Kafka, as a table: which operation, on what, and for which purpose.

In Kafka, READ and WRITE include DESCRIBE, so DESCRIBE is listed only where neither is needed. Spark's readers need no
right on their groups, which they never use. Whoever writes the source topic has other rights.
"""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from tidemark.definitions.stream import Stream
from tidemark.kafka.names import (
    ADOPT_GROUP,
    EVIDENCE_GROUP,
    OFFSETS_TOPIC,
    POSITIONS_GROUP,
    TRANSACTIONS_TOPIC,
    delivery_prefix,
    marker_topic,
)
from tidemark.settings import Settings

# reconcile also stands for rollbacks, which ask Kafka nothing, as maintenance does.
Role = Literal["archive", "speed", "replay", "reconcile", "reader", "maintenance"]
ROLES: tuple[Role, ...] = get_args(Role)
Resource = Literal["topic", "group", "transactional-id", "cluster"]
Operation = Literal["Read", "Write", "Create", "Alter", "Describe", "DescribeConfigs"]
# Of the source topic, and of the live and dead-letter topics.
Side = Literal["source", "live"]
CLUSTER = "kafka-cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Acl:
    """One permission: ``operation`` on the resource, or with ``prefixed`` on all whose names begin with ``name``.

    ``cluster`` is the one that it is for, if the live topics are on a cluster of their own; otherwise all are for the
    source's. ``purpose`` says what fails without it.
    """

    cluster: Side
    resource: Resource
    name: str
    operation: Operation
    prefixed: bool = False
    purpose: str = field(compare=False)

    def command(self, servers: str, principal: str) -> str:
        """The command of Kafka's own tool that grants it; ``admin.properties`` is the administrator's connection."""
        what = ["--cluster"] if self.resource == "cluster" else [f"--{self.resource}", self.name]
        pattern = ["--resource-pattern-type", "prefixed"] if self.prefixed else []
        tool = ["kafka-acls.sh", "--bootstrap-server", servers, "--command-config", "admin.properties"]
        return shlex.join(
            [*tool, "--add", "--allow-principal", principal, "--operation", self.operation, *what, *pattern]
        )


def acls(role: Role, stream: Stream, settings: Settings) -> tuple[Acl, ...]:
    """Everything that the role needs for the stream, in a fixed order and without repetition."""
    found = _ROLES[role](stream, settings)
    if settings.speed_kafka_bootstrap is None:
        return tuple(dict.fromkeys(replace(item, cluster="source") for item in found))
    return tuple(dict.fromkeys(found))


def _topic(cluster: Side, name: str, **purposes: str) -> Iterator[Acl]:
    """Permissions on one topic: each operation, as the name of an argument, with its purpose."""
    for operation in get_args(Operation):
        if operation in purposes:
            yield Acl(cluster=cluster, resource="topic", name=name, operation=operation, purpose=purposes[operation])


def _group(cluster: Side, name: str, purpose: str) -> Acl:
    """A group in whose name a client reads, which never joins it and never commits."""
    return Acl(cluster=cluster, resource="group", name=name, operation="Describe", purpose=purpose)


def _archive(stream: Stream, _: Settings) -> Iterator[Acl]:
    yield from _topic(
        "source", stream.topic, Read="reads the records", DescribeConfigs="asks whether the topic is compacted"
    )
    yield _group("source", POSITIONS_GROUP, "compares records with archived ones, and measures the lag")
    yield _group("source", ADOPT_GROUP, "compares records with objects that 'tidemark adopt' imports")


def _reconcile(stream: Stream, _: Settings) -> Iterator[Acl]:
    yield from _topic(
        "source",
        stream.topic,
        Read="finds where a day ends, and refills what the archive lacks",
        DescribeConfigs="asks what retention and compaction delete",
    )
    yield _group("source", POSITIONS_GROUP, "finds where a day ends")
    yield _group("source", EVIDENCE_GROUP, "finds out why an offset has no record")
    for topic in (stream.speed.topic, stream.speed.dead_letter_topic):
        yield from _topic(
            "live", topic, Read="audits what was delivered", DescribeConfigs="asks what retention and compaction delete"
        )


def _reader(stream: Stream, settings: Settings) -> Iterator[Acl]:
    yield from _reconcile(stream, settings)
    yield from _settings_checks(stream)


def _settings_checks(stream: Stream) -> Iterator[Acl]:
    """For the warnings about dangerous settings."""
    for cluster in get_args(Side):
        yield Acl(
            cluster=cluster,
            resource="cluster",
            name=CLUSTER,
            operation="DescribeConfigs",
            purpose="warns of dangerous settings of the brokers",
        )
    if stream.speed.delivery == "exactly_once":
        for topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
            warns = "warns if the loss of a broker could lose markers or transactions"
            yield from _topic("live", topic, Describe=warns, DescribeConfigs=warns)


def _speed(stream: Stream, settings: Settings) -> Iterator[Acl]:
    yield from _topic(
        "source", stream.topic, Read="reads the records", DescribeConfigs="makes output topics that fit the source"
    )
    yield _group("source", POSITIONS_GROUP, "measures the lag")
    for topic in (stream.speed.topic, stream.speed.dead_letter_topic):
        yield from _topic(
            "live",
            topic,
            Write="delivers records",
            Create="creates the topic if it does not exist",
            DescribeConfigs="asks how large a record may be",
        )
    yield from _settings_checks(stream)
    if stream.speed.delivery == "exactly_once":
        yield from _transactions(delivery_prefix("speed", stream, settings), marker_topic(stream.speed.topic))


def _replay(stream: Stream, settings: Settings) -> Iterator[Acl]:
    live, dead_letters = stream.speed.topic, stream.speed.dead_letter_topic
    yield from _topic("source", stream.topic, Describe="asks for the topic's id, which dead letters name")
    yield from _topic("live", live, Write="delivers records", DescribeConfigs="asks how large a record may be")
    yield from _topic(
        "live",
        dead_letters,
        Read="reads the dead letters",
        Write="delivers those that are rejected again",
        DescribeConfigs="asks how large a record may be",
    )
    yield from _transactions(delivery_prefix("replay", stream, settings), marker_topic(dead_letters))


def _transactions(prefix: str, markers: str) -> Iterator[Acl]:
    """For exactly-once delivery. Markers are offsets that a group commits, and need READ on their topic."""
    yield from _topic(
        "live",
        markers,
        Read="commits markers",
        Create="creates the topic of the markers",
        Alter="adds partitions for the markers of new logs",
    )
    yield Acl(cluster="live", resource="group", name=prefix, operation="Read", prefixed=True, purpose="commits markers")
    yield Acl(
        cluster="live",
        resource="transactional-id",
        name=prefix,
        operation="Write",
        prefixed=True,
        purpose="delivers records in transactions",
    )


def _nothing(_stream: Stream, _settings: Settings) -> Iterator[Acl]:
    yield from ()


_ROLES = {
    "archive": _archive,
    "speed": _speed,
    "replay": _replay,
    "reconcile": _reconcile,
    "reader": _reader,
    "maintenance": _nothing,
}
