"""Dangerous settings of the source topic, the output topics and their cluster: they can lose or refuse records.

Output topics that Tidemark creates have none of them. A finding is a warning: it never stops a stream.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemark.connections.kafka import KafkaConnection
from tidemark.core.errors import ServiceError, TidemarkError
from tidemark.definitions.stream import Stream
from tidemark.kafka.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tidemark.kafka.permitted import refused
from tidemark.kafka.reach import reach
from tidemark.kafka.topics import broker_configs, copies, topic_config, unwritable
from tidemark.settings import Settings
from tidemark.speed.record_limits import HEADER_ROOM_BYTES, NO_LIMIT_MS, RecordLimits

DAY_MS = 24 * 3600 * 1000
DAY_MINUTES = 24 * 60
# A live record is needed until its day is rebuilt, a dead letter until somebody replays it.
LIVE_RETENTION_MS = 2 * DAY_MS
DEAD_LETTER_RETENTION_MS = 7 * DAY_MS
MARKER_RETENTION_DAYS = 365
# The time-out of the speed layer's transactions. Kafka's default limit is 15 minutes.
TRANSACTION_TIMEOUT_S = 120.0
# Partitions that one error names.
NAMED_MAX = 5
LIMIT = "max.message.bytes"
BEFORE, AFTER = TIMES = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
# For brokers that do not have the setting.
DEFAULTS = {
    "cleanup.policy": "delete",
    BEFORE: str(NO_LIMIT_MS),
    AFTER: str(NO_LIMIT_MS),
    "message.timestamp.type": "CreateTime",
    "min.insync.replicas": "2",
    "retention.ms": "-1",
    "unclean.leader.election.enable": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One dangerous setting of a ``resource``: its value, the recommended value, the reason, and how to fix it."""

    resource: str
    setting: str
    found: str
    expected: str
    why: str
    fix: str

    def __str__(self) -> str:
        state = f"{self.setting} is {self.found}, expected {self.expected}"
        return f"{self.resource}: {state}: {self.why}. To fix it: {self.fix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic: ``replicas`` is the smallest number of replicas of any partition, ``config`` the effective settings."""

    name: str
    replicas: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A cluster: its address, the number of live brokers, and each setting's value on every broker."""

    kafka: KafkaConnection
    brokers: int
    config: Mapping[str, tuple[str, ...]]

    def least(self, setting: str) -> int | None:
        """The smallest value on any broker; None if no broker reports it, as with some hosted services."""
        return min((int(value) for value in self.config.get(setting, ())), default=None)


def findings(stream: Stream, settings: Settings) -> tuple[Finding, ...]:
    """The dangerous settings of the stream's source topic, then of its output topics and their cluster.

    With exactly-once delivery, markers and transactions are checked too. A topic that does not exist has no findings.
    Settings that cannot be read are a finding, not an error.
    """
    # Both may be on one cluster that does not answer.
    return tuple(dict.fromkeys((*_of_source(stream, settings.kafka), *_of_outputs(stream, settings))))


def record_limits(stream: Stream, kafka: KafkaConnection) -> RecordLimits:
    """What the stream's output topics accept; ``kafka`` is their cluster. Raises as ``topic_config``."""
    live, dead = (
        {**DEFAULTS, **topic_config(kafka, name)} for name in (stream.speed.topic, stream.speed.dead_letter_topic)
    )
    before, after = (min(int(live[name]), int(dead[name])) for name in TIMES)
    return RecordLimits(live=int(live[LIMIT]), dead_letter=int(dead[LIMIT]), before_ms=before, after_ms=after)


def _of_source(stream: Stream, kafka: KafkaConnection) -> tuple[Finding, ...]:
    """Settings by which the source topic loses records, and gives their offsets to others."""
    try:
        reach(kafka)
        topic = _topic(kafka, stream.topic)
        return () if topic is None else tuple(durability(topic, _cluster(kafka)))
    except ServiceError as error:
        return (_unreadable(kafka, error),)


def _of_outputs(stream: Stream, settings: Settings) -> tuple[Finding, ...]:
    kafka, speed = settings.speed_kafka, stream.speed
    exactly_once = speed.delivery == "exactly_once"
    try:
        reach(kafka)
        cluster = _cluster(kafka)
        live, dead_letters = (_topic(kafka, name) for name in (speed.topic, speed.dead_letter_topic))
        source = _topic(settings.kafka, stream.topic)
        internal = [_topic(kafka, name) for name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC) if exactly_once]
    except ServiceError as error:
        return (_unreadable(kafka, error),)
    found: list[Finding] = []
    if live is not None:
        found += live_topic(live, cluster, source, keyed=speed.key is not None, exactly_once=exactly_once)
    if dead_letters is not None:
        found += dead_letter_topic(dead_letters, cluster, source, exactly_once=exactly_once)
    for topic in internal:
        found += [] if topic is None else durability(topic, cluster)
    if exactly_once:
        found += exactly_once_needs(cluster, transactions_topic=internal[1] is not None)
    return tuple(found)


def _cluster(kafka: KafkaConnection) -> Cluster:
    configs = broker_configs(kafka)
    names = {name for config in configs for name in config}
    values = {name: tuple(config[name] for config in configs if name in config) for name in names}
    return Cluster(kafka=kafka, brokers=len(configs), config=values)


def _topic(kafka: KafkaConnection, name: str) -> Topic | None:
    replicas = copies(kafka, name)
    if replicas is None:
        return None
    return Topic(name=name, replicas=replicas, config={**DEFAULTS, **topic_config(kafka, name)})


def diagnosed(error: TidemarkError, kafka: KafkaConnection, topics: Sequence[str]) -> TidemarkError:
    """Add to a ServiceError which partitions cannot be written now: Kafka's client only says that it timed out.

    Other errors are returned unchanged.
    """
    if not isinstance(error, ServiceError):
        return error
    try:
        short = [reason for topic in topics for reason in unwritable(kafka, topic)]
    except ServiceError:
        return error
    if not short:
        return error
    more = f"; and {len(short) - NAMED_MAX} more" if len(short) > NAMED_MAX else ""
    state = f"Now {'; '.join(short[:NAMED_MAX])}{more}"
    hint = state if error.hint is None else f"{state}. {error.hint}"
    return ServiceError(error.problem, expected=error.expected, found=error.found, where=error.where, hint=hint)


def live_topic(
    topic: Topic, cluster: Cluster, source: Topic | None, *, keyed: bool, exactly_once: bool
) -> list[Finding]:
    """The dangerous settings of a live topic; ``keyed``: the stream sets ``speed.key``."""
    found = durability(topic, cluster)
    if "compact" in topic.config["cleanup.policy"] and not keyed:
        why = (
            "Kafka refuses records without a key, which stops the stream, and keeps only the last record of each key;"
            " without speed.key, records have the keys of the source"
        )
        found.append(_of_topic(topic, cluster, "cleanup.policy", expected="delete", why=why))
    needed = "until their day is rebuilt"
    return found + _times(topic, cluster, source, LIVE_RETENTION_MS, needed, exactly_once=exactly_once)


def dead_letter_topic(topic: Topic, cluster: Cluster, source: Topic | None, *, exactly_once: bool) -> list[Finding]:
    """The dangerous settings of a dead-letter topic."""
    found = durability(topic, cluster)
    largest = int(source.config[LIMIT]) if source is not None else 0
    if int(topic.config[LIMIT]) < largest:
        why = "a dead letter above this limit is written without key, value and headers, and can't be replayed"
        expected = f"at least {largest + HEADER_ROOM_BYTES}"
        found.append(_of_topic(topic, cluster, LIMIT, expected=expected, why=why))
    if "compact" in topic.config["cleanup.policy"]:
        why = "dead letters with equal keys replace each other, and one without a key stops the stream"
        found.append(_of_topic(topic, cluster, "cleanup.policy", expected="delete", why=why))
    needed = "until somebody has replayed them"
    return found + _times(topic, cluster, source, DEAD_LETTER_RETENTION_MS, needed, exactly_once=exactly_once)


def durability(topic: Topic, cluster: Cluster) -> list[Finding]:
    """Settings by which the loss of one broker loses acknowledged records, or makes the topic unwritable."""
    found = []
    in_sync = int(topic.config["min.insync.replicas"])
    most = min(cluster.brokers, 3)
    if topic.replicas == 1 and most > 1:
        why = "without its only broker a partition is unavailable, and without that broker's disk its records are lost"
        found.append(_replication(topic, cluster, str(most), why))
    if topic.replicas > 1 and in_sync == 1:
        why = "a record that only one broker has is acknowledged, and lost with that broker"
        majority = topic.replicas // 2 + 1
        found.append(_of_topic(topic, cluster, "min.insync.replicas", expected=str(majority), why=why))
    if topic.replicas > 1 and in_sync >= topic.replicas:
        expected = f"above {in_sync}, with min.insync.replicas unchanged"
        why = f"min.insync.replicas is {in_sync}: nothing can be delivered while any broker is unavailable"
        found.append(_replication(topic, cluster, expected, why))
    if topic.config["unclean.leader.election.enable"] == "true":
        why = "a broker without some acknowledged records may become the leader, and they are lost"
        found.append(_of_topic(topic, cluster, "unclean.leader.election.enable", expected="false", why=why))
    return found


def _times(
    topic: Topic, cluster: Cluster, source: Topic | None, retention_ms: int, needed: str, *, exactly_once: bool
) -> list[Finding]:
    """Settings that act on a record's age. With exactly-once delivery, records have the source's timestamps."""
    found = []
    kept_ms = int(topic.config["retention.ms"])
    if "delete" in topic.config["cleanup.policy"] and 0 <= kept_ms < retention_ms:
        why = f"its records are needed {needed}"
        found.append(_of_topic(topic, cluster, "retention.ms", expected=f"at least {retention_ms}", why=why))
    if not exactly_once:
        return found
    if topic.config["message.timestamp.type"] != "CreateTime":
        why = "records get the time of their delivery; only the header has the source's timestamp"
        found.append(_of_topic(topic, cluster, "message.timestamp.type", expected="CreateTime", why=why))
        return found
    wanted = {} if source is None else {setting: source.config[setting] for setting in TIMES}
    for setting, expected in wanted.items():
        if int(topic.config[setting]) < int(expected):
            why = (
                "the source accepts timestamps further from now; such a record gets the time of its delivery, and only"
                " the header has the source's timestamp"
            )
            found.append(_of_topic(topic, cluster, setting, expected=f"at least {expected}", why=why))
    return found


def exactly_once_needs(cluster: Cluster, *, transactions_topic: bool) -> list[Finding]:
    """Broker settings that are dangerous for markers and transactions; ``transactions_topic``: that topic exists."""
    most = min(cluster.brokers, 3)
    lost = "the loss of one broker may lose commits, and leave transactions incomplete"
    forgotten = "so long after the last delivery Kafka deletes the marker, and the stream stops with an error"
    too_long = "Kafka refuses transactions that may take longer, which stops the stream"
    least = {
        "offsets.retention.minutes": (MARKER_RETENTION_DAYS * DAY_MINUTES, forgotten),
        "transaction.max.timeout.ms": (round(TRANSACTION_TIMEOUT_S * 1000), too_long),
    }
    if not transactions_topic:  # the first transaction creates it with these settings
        least["transaction.state.log.replication.factor"] = (most, lost)
        least["transaction.state.log.min.isr"] = (most // 2 + 1, lost)
    found = []
    for setting, (expected, why) in least.items():
        value = cluster.least(setting)
        if value is None or value < expected:
            found.append(_of_brokers(cluster, setting, value, expected, why))
    return found


def _of_topic(topic: Topic, cluster: Cluster, setting: str, *, expected: str, why: str) -> Finding:
    value = expected.removeprefix("at least ")
    command = f"kafka-configs.sh --bootstrap-server {cluster.kafka} --alter --topic {topic.name}"
    return Finding(
        resource=f"topic {topic.name}",
        setting=setting,
        found=topic.config[setting],
        expected=expected,
        why=why,
        fix=f"{command} --add-config {setting}={value}",
    )


def _replication(topic: Topic, cluster: Cluster, expected: str, why: str) -> Finding:
    command = f"kafka-reassign-partitions.sh --bootstrap-server {cluster.kafka} --execute"
    first = "" if cluster.brokers > topic.replicas else f"add a broker to the existing {cluster.brokers}; "
    return Finding(
        resource=f"topic {topic.name}",
        setting="replication factor",
        found=str(topic.replicas),
        expected=expected,
        why=why,
        fix=f"{first}write the brokers of each partition into FILE, {command} --reassignment-json-file FILE",
    )


def _of_brokers(cluster: Cluster, setting: str, value: int | None, expected: int, why: str) -> Finding:
    def text(number: int) -> str:
        return f"{number} ({number / DAY_MINUTES:.3g} days)" if setting.endswith(".minutes") else str(number)

    return Finding(
        resource=f"cluster {cluster.kafka}",
        setting=setting,
        found="not reported" if value is None else text(value),
        expected=f"at least {text(expected)}",
        why=why,
        # None of these can be changed while a broker runs.
        fix=f"{setting}={expected} in every broker's server.properties, and restart one broker after the other",
    )


def _unreadable(kafka: KafkaConnection, error: ServiceError) -> Finding:
    return Finding(
        resource=f"cluster {kafka}",
        setting="settings",
        found=str(ServiceError(error.problem, found=error.found, where=error.where)),
        expected="to be readable",
        why="dangerous settings would go unnoticed",
        fix="allow the stream's user DESCRIBE and DESCRIBE_CONFIGS on its topics and on the cluster"
        if refused(error)
        else f"{error.hint}. 'tidemark doctor' checks every connection",
    )
