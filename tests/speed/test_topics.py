"""Dangerous settings of output topics and clusters, on a real cluster of three brokers."""

from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from tests.cluster import Cluster
from tests.conftest import MakeStream, unique
from tidemark.cli.app import app
from tidemark.connections.kafka import KafkaConnection
from tidemark.definitions.stream import Stream
from tidemark.kafka.topics import broker_configs, copies, ensure_topic, topic_config
from tidemark.settings import Settings
from tidemark.speed import topics
from tidemark.speed.topics import (
    Finding,
    Topic,
    dead_letter_topic,
    durability,
    exactly_once_needs,
    findings,
    live_topic,
)

DAY_MS = 86_400_000
SOUND = {
    "cleanup.policy": "delete",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.insync.replicas": "2",
    "retention.ms": str(7 * DAY_MS),
    "unclean.leader.election.enable": "false",
}
SOURCE = Topic(name="source", replicas=3, config=SOUND)


def at(brokers: Cluster, settings: Settings) -> Settings:
    return settings.model_copy(update={"speed_kafka_bootstrap": brokers.bootstrap})


def values(found: tuple[Finding, ...] | list[Finding]) -> list[tuple[str, str, str, str]]:
    return [(item.resource, item.setting, item.found, item.expected) for item in found]


def test_every_dangerous_setting_of_existing_topics_is_a_finding_with_a_fix(
    brokers: Cluster, settings: Settings, make_stream: MakeStream
) -> None:
    live = brokers.create(
        unique("live"), min_insync_replicas="1", unclean_leader_election_enable="true", cleanup_policy="compact"
    )
    dead = brokers.create(unique("dead"), copies=1, retention_ms=str(DAY_MS))
    stream = make_stream(speed={"topic": live, "dead_letter_topic": dead})

    found = findings(stream, at(brokers, settings))

    assert values(found) == [
        (f"topic {live}", "min.insync.replicas", "1", "2"),
        (f"topic {live}", "unclean.leader.election.enable", "true", "false"),
        (f"topic {live}", "cleanup.policy", "compact", "delete"),
        (f"topic {dead}", "replication factor", "1", "3"),
        (f"topic {dead}", "retention.ms", str(DAY_MS), f"at least {7 * DAY_MS}"),
    ]
    alter = f"kafka-configs.sh --bootstrap-server {brokers.bootstrap} --alter --topic"
    assert found[0].fix == f"{alter} {live} --add-config min.insync.replicas=2"
    assert found[4].fix == f"{alter} {dead} --add-config retention.ms={7 * DAY_MS}"
    assert "kafka-reassign-partitions.sh" in found[3].fix
    assert all(item.why in str(item) and item.fix in str(item) for item in found)


@pytest.mark.conformance(30)
def test_a_source_topic_that_can_lose_records_is_a_finding(
    brokers: Cluster, settings: Settings, make_stream: MakeStream
) -> None:
    source = brokers.create(unique("source"), min_insync_replicas="1", unclean_leader_election_enable="true")
    there = settings.model_copy(update={"kafka_bootstrap": brokers.bootstrap})
    assert values(findings(make_stream(topic=source), there)) == [
        (f"topic {source}", "min.insync.replicas", "1", "2"),
        (f"topic {source}", "unclean.leader.election.enable", "true", "false"),
    ]


def test_created_topics_have_no_findings_and_are_known_to_all_brokers_at_once(
    brokers: Cluster, settings: Settings, make_stream: MakeStream
) -> None:
    live, dead = unique("live"), unique("dead")
    stream = make_stream(speed={"topic": live, "dead_letter_topic": dead, "delivery": "exactly_once"})
    for name in (live, dead):
        assert ensure_topic(brokers.kafka, name, partitions=4)
        assert not ensure_topic(brokers.kafka, name, partitions=4)
        for address in brokers.bootstrap.split(","):
            admin = AdminClient({"bootstrap.servers": address})
            assert len(admin.list_topics(timeout=30).topics[name].partitions) == 4
    config = topic_config(brokers.kafka, live)
    assert (copies(brokers.kafka, live), config["min.insync.replicas"]) == (3, "2")
    assert config["unclean.leader.election.enable"] == "false"
    assert findings(stream, at(brokers, settings)) == ()


def test_a_cluster_with_one_broker_has_no_finding(settings: Settings, make_stream: MakeStream) -> None:
    stream = make_stream(speed={"topic": unique("live"), "dead_letter_topic": unique("dead")})
    assert findings(stream, settings) == ()  # not created yet
    assert ensure_topic(settings.kafka, stream.speed.topic, partitions=1)
    assert topic_config(settings.kafka, stream.speed.topic)["min.insync.replicas"] == "1"
    assert findings(stream, settings) == ()


def test_a_cluster_that_does_not_answer_is_a_finding_not_an_error(settings: Settings, make_stream: MakeStream) -> None:
    stream: Stream = make_stream()
    nobody = settings.model_copy(update={"speed_kafka_bootstrap": "127.0.0.1:1"})
    (found,) = findings(stream, nobody)
    assert (found.resource, found.setting, found.expected) == ("cluster 127.0.0.1:1", "settings", "to be readable")
    assert found.found.startswith("Kafka is unreachable: ")
    assert "DESCRIBE" not in found.fix


def test_the_status_of_a_stream_names_every_setting_that_can_lose_records(
    brokers: Cluster,
    settings: Settings,
    make_stream: MakeStream,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = make_stream(
        speed={"topic": brokers.create(unique("live"), copies=1), "dead_letter_topic": brokers.create(unique("dead"))}
    )
    monkeypatch.setattr("tidemark.cli.status.connect_s3", lambda _stack: at(brokers, settings))
    shown = CliRunner().invoke(app, ["status", stream.name])
    assert f"Can lose records: topic {stream.speed.topic}: replication factor is 1, expected 3" in shown.stdout


# Cases as values that no test can set up on running brokers.
THREE = topics.Cluster(
    kafka=KafkaConnection.plain("b:9092"),
    brokers=3,
    config={
        "offsets.retention.minutes": (str(366 * 1440),) * 3,
        "transaction.max.timeout.ms": ("900000",) * 3,
        "transaction.state.log.min.isr": ("2",) * 3,
        "transaction.state.log.replication.factor": ("3",) * 3,
    },
)


@pytest.mark.parametrize(
    ("brokers", "copies", "in_sync", "expected"),
    [
        (1, 1, "1", []),
        (2, 1, "1", [("replication factor", "1", "2")]),
        (2, 2, "1", [("min.insync.replicas", "1", "2")]),
        (2, 2, "2", [("replication factor", "2", "above 2, with min.insync.replicas unchanged")]),
        (3, 3, "2", []),
        (3, 3, "3", [("replication factor", "3", "above 3, with min.insync.replicas unchanged")]),
        (5, 5, "1", [("min.insync.replicas", "1", "3")]),
        (9, 1, "2", [("replication factor", "1", "3")]),
    ],
)
def test_durability_findings_by_brokers_replicas_and_in_sync_replicas(
    brokers: int, copies: int, in_sync: str, expected: list[tuple[str, ...]]
) -> None:
    topic = Topic(name="t", replicas=copies, config={**SOUND, "min.insync.replicas": in_sync})
    found = durability(topic, replace(THREE, brokers=brokers))
    assert [(item.setting, item.found, item.expected) for item in found] == expected


@pytest.mark.parametrize(
    ("config", "keyed", "exactly_once", "expected"),
    [
        ({}, False, True, []),
        ({"cleanup.policy": "compact"}, True, True, []),
        ({"cleanup.policy": "compact,delete"}, False, True, ["cleanup.policy"]),
        ({"retention.ms": str(2 * DAY_MS - 1)}, False, False, ["retention.ms"]),
        ({"retention.ms": "-1"}, False, False, []),
        ({"retention.ms": "1", "cleanup.policy": "compact"}, True, False, []),
        ({"message.timestamp.type": "LogAppendTime"}, False, False, []),
        ({"message.timestamp.type": "LogAppendTime"}, False, True, ["message.timestamp.type"]),
        ({"message.timestamp.before.max.ms": "3600000"}, False, True, ["message.timestamp.before.max.ms"]),
        ({"message.timestamp.before.max.ms": "3600000"}, False, False, []),
        ({"message.timestamp.after.max.ms": "3599999"}, False, True, ["message.timestamp.after.max.ms"]),
        ({"message.timestamp.after.max.ms": "9223372036854775807"}, False, True, []),
    ],
)
def test_dangerous_settings_of_a_live_topic(
    config: dict[str, str], *, keyed: bool, exactly_once: bool, expected: list[str]
) -> None:
    topic = Topic(name="t", replicas=3, config={**SOUND, **config})
    found = live_topic(topic, THREE, SOURCE, keyed=keyed, exactly_once=exactly_once)
    assert [item.setting for item in found] == expected


def test_a_compacted_dead_letter_topic_is_a_finding() -> None:
    topic = Topic(name="t", replicas=3, config={**SOUND, "cleanup.policy": "compact"})
    assert [item.setting for item in dead_letter_topic(topic, THREE, SOURCE, exactly_once=False)] == ["cleanup.policy"]


def test_a_dead_letter_topic_with_a_smaller_limit_than_the_source_is_a_finding() -> None:
    topic = Topic(name="t", replicas=3, config={**SOUND, "max.message.bytes": "1048587"})
    (found,) = dead_letter_topic(topic, THREE, SOURCE, exactly_once=False)
    assert (found.setting, found.found, found.expected) == ("max.message.bytes", "1048587", "at least 1114124")
    assert dead_letter_topic(topic, THREE, None, exactly_once=True) == []  # the source can't be read


def test_exactly_once_needs_are_checked_against_the_weakest_broker() -> None:
    assert exactly_once_needs(THREE, transactions_topic=False) == []
    poor = {
        "offsets.retention.minutes": ("10080", "600000", "600000"),
        "transaction.max.timeout.ms": ("900000", "60000", "900000"),
        "transaction.state.log.min.isr": ("2", "2", "1"),
        "transaction.state.log.replication.factor": ("1", "1", "1"),
    }
    cluster = replace(THREE, config=poor)
    expected = [
        ("cluster b:9092", "offsets.retention.minutes", "10080 (7 days)", "at least 525600 (365 days)"),
        ("cluster b:9092", "transaction.max.timeout.ms", "60000", "at least 120000"),
        ("cluster b:9092", "transaction.state.log.replication.factor", "1", "at least 3"),
        ("cluster b:9092", "transaction.state.log.min.isr", "1", "at least 2"),
    ]
    found = exactly_once_needs(cluster, transactions_topic=False)
    assert values(found) == expected
    assert found[0].fix.startswith("offsets.retention.minutes=525600 in every broker's server.properties")
    assert values(exactly_once_needs(cluster, transactions_topic=True)) == expected[:2]
    unreported = replace(THREE, config={})
    assert [item.found for item in exactly_once_needs(unreported, transactions_topic=True)] == [
        "not reported",
        "not reported",
    ]


def test_broker_configs_returns_the_effective_settings(brokers: Cluster) -> None:
    found = broker_configs(brokers.kafka)
    assert len(found) == 3
    assert {item["node.id"] for item in found} == {"1", "2", "3"}
    assert {item["transaction.state.log.min.isr"] for item in found} == {"2"}
