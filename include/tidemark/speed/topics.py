"""Settings of the output topics and of their cluster that can lose, refuse or stop records, told before they do.

Topics the platform creates have none of them; topics somebody else created may. Nothing here stops a stream.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from tidemark.core.errors import ServiceError, TidemarkError
from tidemark.definitions.stream import Stream
from tidemark.kafka.topics import broker_configs, copies, topic_config, unwritable
from tidemark.settings import Settings

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
DAY_MS = 24 * 3600 * 1000
DAY_MINUTES = 24 * 60
# A live record is wanted until its day is rebuilt, a dead letter until somebody has looked at it and replayed it.
LIVE_RETENTION_MS = 2 * DAY_MS
DEAD_LETTER_RETENTION_MS = 7 * DAY_MS
MARKER_RETENTION_DAYS = 365
# What a transaction of the speed layer asks for; Kafka's own limit is 15 minutes.
TRANSACTION_TIMEOUT_S = 120.0
# Partitions that one error names.
TOLD = 5
_NO_LIMIT = 2**63 - 1
# Of brokers of another make, which may not have the setting.
ASSUMED = {
    "cleanup.policy": "delete",
    "message.timestamp.before.max.ms": str(_NO_LIMIT),
    "message.timestamp.type": "CreateTime",
    "min.insync.replicas": "2",
    "retention.ms": "-1",
    "unclean.leader.election.enable": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One dangerous setting: of what (``which``), both sides, why it matters, and the command or step that mends it."""

    which: str
    setting: str
    found: str
    wanted: str
    why: str
    mend: str

    def __str__(self) -> str:
        return (
            f"{self.which}: {self.setting} is {self.found}, wanted {self.wanted}: {self.why}. To mend it: {self.mend}"
        )

    def fields(self) -> dict[str, str]:
        """For a log event."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic as it is: ``replicas`` is the least number of copies of any partition, ``config`` what is in force."""

    name: str
    replicas: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A cluster as it is: its address, live brokers, and per setting the values its brokers have, all equal or not."""

    bootstrap: str
    brokers: int
    config: Mapping[str, tuple[str, ...]]

    def least(self, setting: str) -> int | None:
        """The least value of a number that any broker has; None where none tells, as with some services."""
        return min((int(value) for value in self.config.get(setting, ())), default=None)


def findings(stream: Stream, settings: Settings) -> tuple[Finding, ...]:
    """What is dangerous about the stream's output topics and their cluster, the live topic first; () if nothing is.

    For exactly-once delivery also what markers and transactions need. A topic that does not exist has no findings.
    What can't be told, for want of a right or a broker, is a finding as well: no error is raised.
    """
    bootstrap, speed = settings.speed_bootstrap, stream.speed
    exactly_once = speed.delivery == "exactly_once"
    try:
        cluster = _cluster(bootstrap)
        live, dead_letters = (_topic(bootstrap, name) for name in (speed.topic, speed.dead_letter_topic))
        internal = [_topic(bootstrap, name) for name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC) if exactly_once]
    except ServiceError as error:
        return (_untold(bootstrap, error),)
    found: list[Finding] = []
    if live is not None:
        found += live_topic(live, cluster, keyed=speed.key is not None, exactly_once=exactly_once)
    if dead_letters is not None:
        found += dead_letter_topic(dead_letters, cluster, exactly_once=exactly_once)
    for topic in internal:
        found += [] if topic is None else durability(topic, cluster)
    if exactly_once:
        found += exactly_once_needs(cluster, transactions_topic=internal[1] is not None)
    return tuple(found)


def _cluster(bootstrap: str) -> Cluster:
    configs = broker_configs(bootstrap)
    names = {name for config in configs for name in config}
    values = {name: tuple(config[name] for config in configs if name in config) for name in names}
    return Cluster(bootstrap=bootstrap, brokers=len(configs), config=values)


def _topic(bootstrap: str, name: str) -> Topic | None:
    replicas = copies(bootstrap, name)
    if replicas is None:
        return None
    return Topic(name=name, replicas=replicas, config={**ASSUMED, **topic_config(bootstrap, name)})


def diagnosed(error: TidemarkError, bootstrap: str, topics: Sequence[str]) -> TidemarkError:
    """A ServiceError with what is wrong with the output topics now, where Kafka tells: clients say but that time is up.

    Any other error as it is.
    """
    if not isinstance(error, ServiceError):
        return error
    try:
        short = [reason for topic in topics for reason in unwritable(bootstrap, topic)]
    except ServiceError:
        return error
    if not short:
        return error
    told = "; ".join(short[:TOLD]) + (f"; and {len(short) - TOLD} more" if len(short) > TOLD else "")
    hint = f"Now {told}" if error.hint is None else f"Now {told}. {error.hint}"
    return ServiceError(error.problem, expected=error.expected, found=error.found, where=error.where, hint=hint)


def live_topic(topic: Topic, cluster: Cluster, *, keyed: bool, exactly_once: bool) -> list[Finding]:
    """What is dangerous about a live topic; ``keyed``: the stream gives its records a key of its own."""
    found = durability(topic, cluster)
    if "compact" in topic.config["cleanup.policy"] and not keyed:
        found.append(
            _of_topic(
                topic,
                cluster,
                "cleanup.policy",
                wanted="delete",
                why="Kafka refuses records without a key, which ends the stream, and keeps but the last of a key;"
                " without speed.key records have the keys of the source",
            )
        )
    return found + _times(topic, cluster, LIVE_RETENTION_MS, "until their day is rebuilt", exactly_once=exactly_once)


def dead_letter_topic(topic: Topic, cluster: Cluster, *, exactly_once: bool) -> list[Finding]:
    """What is dangerous about a dead-letter topic."""
    found = durability(topic, cluster)
    if "compact" in topic.config["cleanup.policy"]:
        why = "dead letters with equal keys would replace each other, and one without a key ends the stream"
        found.append(_of_topic(topic, cluster, "cleanup.policy", wanted="delete", why=why))
    needed = "until somebody has replayed them"
    return found + _times(topic, cluster, DEAD_LETTER_RETENTION_MS, needed, exactly_once=exactly_once)


def durability(topic: Topic, cluster: Cluster) -> list[Finding]:
    """Whether an acknowledged record outlives a broker, and whether the topic can be written without one."""
    found = []
    in_sync = int(topic.config["min.insync.replicas"])
    most = min(cluster.brokers, 3)
    if topic.replicas == 1 and most > 1:
        why = "with its only broker the partition is away, and with that broker's disk its records are lost"
        found.append(_replication(topic, cluster, str(most), why))
    if topic.replicas > 1 and in_sync == 1:
        found.append(
            _of_topic(
                topic,
                cluster,
                "min.insync.replicas",
                wanted=str(topic.replicas // 2 + 1),
                why="a record that one broker alone has is acknowledged, and lost with that broker",
            )
        )
    if topic.replicas > 1 and in_sync >= topic.replicas:
        wanted = f"above {in_sync}, with min.insync.replicas left as it is"
        why = f"min.insync.replicas is {in_sync}: while any broker is away nothing can be delivered"
        found.append(_replication(topic, cluster, wanted, why))
    if topic.config["unclean.leader.election.enable"] == "true":
        found.append(
            _of_topic(
                topic,
                cluster,
                "unclean.leader.election.enable",
                wanted="false",
                why="a broker that lacks acknowledged records may become the leader, and they are lost",
            )
        )
    return found


def _times(topic: Topic, cluster: Cluster, retention_ms: int, needed: str, *, exactly_once: bool) -> list[Finding]:
    """What the topic does to records for their age. Exactly-once delivery gives them the source's timestamps."""
    found = []
    kept_ms = int(topic.config["retention.ms"])
    if "delete" in topic.config["cleanup.policy"] and 0 <= kept_ms < retention_ms:
        why = f"its records are wanted {needed}"
        found.append(_of_topic(topic, cluster, "retention.ms", wanted=f"at least {retention_ms}", why=why))
    if not exactly_once:
        return found
    if topic.config["message.timestamp.type"] != "CreateTime":
        why = "records get the time of their delivery; the source's timestamp is in the header alone"
        found.append(_of_topic(topic, cluster, "message.timestamp.type", wanted="CreateTime", why=why))
    elif int(topic.config["message.timestamp.before.max.ms"]) < _NO_LIMIT:
        setting, wanted = "message.timestamp.before.max.ms", str(_NO_LIMIT)
        why = "records keep the source's timestamp, and Kafka refuses an older one, which ends the stream"
        found.append(_of_topic(topic, cluster, setting, wanted=wanted, why=why))
    return found


def exactly_once_needs(cluster: Cluster, *, transactions_topic: bool) -> list[Finding]:
    """What the brokers' settings mean for markers and transactions; with ``transactions_topic`` that topic exists."""
    most = min(cluster.brokers, 3)
    lost = "what was committed may be forgotten with one broker, and transactions left half done"
    forgotten = "that long after the last delivery Kafka forgets what was delivered, and the stream stops with an error"
    too_long = "Kafka refuses transactions that may take longer, which ends the stream"
    least = {
        "offsets.retention.minutes": (MARKER_RETENTION_DAYS * DAY_MINUTES, forgotten),
        "transaction.max.timeout.ms": (round(TRANSACTION_TIMEOUT_S * 1000), too_long),
    }
    if not transactions_topic:  # with these the first transaction creates it
        least["transaction.state.log.replication.factor"] = (most, lost)
        least["transaction.state.log.min.isr"] = (most // 2 + 1, lost)
    found = []
    for setting, (wanted, why) in least.items():
        value = cluster.least(setting)
        if value is None or value < wanted:
            found.append(_of_brokers(cluster, setting, value, wanted, why))
    return found


def _of_topic(topic: Topic, cluster: Cluster, setting: str, *, wanted: str, why: str) -> Finding:
    value = wanted.removeprefix("at least ")
    command = f"kafka-configs.sh --bootstrap-server {cluster.bootstrap} --alter --topic {topic.name}"
    return Finding(
        which=f"topic {topic.name}",
        setting=setting,
        found=topic.config[setting],
        wanted=wanted,
        why=why,
        mend=f"{command} --add-config {setting}={value}",
    )


def _replication(topic: Topic, cluster: Cluster, wanted: str, why: str) -> Finding:
    command = f"kafka-reassign-partitions.sh --bootstrap-server {cluster.bootstrap} --execute"
    lacking = "" if cluster.brokers > topic.replicas else f"first add a broker to the {cluster.brokers} there are; "
    return Finding(
        which=f"topic {topic.name}",
        setting="replication factor",
        found=str(topic.replicas),
        wanted=wanted,
        why=why,
        mend=f"{lacking}write the brokers of each partition into FILE, {command} --reassignment-json-file FILE",
    )


def _of_brokers(cluster: Cluster, setting: str, value: int | None, wanted: int, why: str) -> Finding:
    def told(number: int) -> str:
        return f"{number} ({number / DAY_MINUTES:.3g} days)" if setting.endswith(".minutes") else str(number)

    return Finding(
        which=f"cluster {cluster.bootstrap}",
        setting=setting,
        found="not told" if value is None else told(value),
        wanted=f"at least {told(wanted)}",
        why=why,
        # None of these can be changed while a broker runs.
        mend=f"{setting}={wanted} in every broker's server.properties, and restart one broker after the other",
    )


def _untold(bootstrap: str, error: ServiceError) -> Finding:
    return Finding(
        which=f"cluster {bootstrap}",
        setting="settings",
        found=str(error),
        wanted="to be readable",
        why="whether any is dangerous is not known",
        mend="allow the stream's user DESCRIBE and DESCRIBE_CONFIGS on its topics and on the cluster",
    )
