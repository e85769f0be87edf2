"""The permissions of each role, against lists that were written by hand."""

from pathlib import Path

import pytest
from pydantic import Secret
from typer.testing import CliRunner

from tidemark.cli.app import app
from tidemark.definitions.sections import Speed
from tidemark.definitions.stream import Stream
from tidemark.kafka.acls import ROLES, Role, acls
from tidemark.settings import Settings
from tidemark.speed.exactly_once.batches import sink_of
from tidemark.speed.replay.replay import replay_sink

SOURCE = {("source", "topic", "orders", "Read"), ("source", "topic", "orders", "DescribeConfigs")}
POSITIONS = ("source", "group", "tidemark-positions", "Describe")
EVIDENCE = ("source", "group", "tidemark-evidence", "Describe")
BROKERS = ("source", "cluster", "kafka-cluster", "DescribeConfigs")
OUTPUTS = {
    ("source", "topic", topic, operation)
    for topic in ("orders.live", "orders.dead")
    for operation in ("Write", "Create", "DescribeConfigs")
}
INTERNAL = {
    ("source", "topic", topic, operation)
    for topic in ("__consumer_offsets", "__transaction_state")
    for operation in ("Describe", "DescribeConfigs")
}
AUDITED = {
    ("source", "topic", topic, operation)
    for topic in ("orders.live", "orders.dead")
    for operation in ("Read", "DescribeConfigs")
}


def transactions(layer: str, topic: str) -> set[tuple[str, str, str, str]]:
    prefix = f"tidemark-prod-{layer}-orders-"
    return {
        *(("source", "topic", f"{topic}.markers", operation) for operation in ("Read", "Create", "Alter")),
        ("source", "group", f"{prefix}*", "Read"),
        ("source", "transactional-id", f"{prefix}*", "Write"),
    }


EXPECTED = {
    ("archive", "at_least_once"): SOURCE | {POSITIONS, ("source", "group", "tidemark-adopt", "Describe")},
    ("reconcile", "at_least_once"): SOURCE | AUDITED | {POSITIONS, EVIDENCE},
    ("reader", "at_least_once"): SOURCE | AUDITED | {POSITIONS, EVIDENCE, BROKERS},
    ("reader", "exactly_once"): SOURCE | AUDITED | INTERNAL | {POSITIONS, EVIDENCE, BROKERS},
    ("speed", "at_least_once"): SOURCE | OUTPUTS | {POSITIONS, BROKERS},
    ("speed", "exactly_once"): SOURCE
    | OUTPUTS
    | INTERNAL
    | {POSITIONS, BROKERS}
    | transactions("speed", "orders.live"),
    ("replay", "at_least_once"): {
        ("source", "topic", "orders", "Describe"),
        ("source", "topic", "orders.live", "Write"),
        ("source", "topic", "orders.live", "DescribeConfigs"),
        ("source", "topic", "orders.dead", "Read"),
        ("source", "topic", "orders.dead", "Write"),
        ("source", "topic", "orders.dead", "DescribeConfigs"),
        *transactions("replay", "orders.dead"),
    },
    ("maintenance", "at_least_once"): set(),
}


def stream(delivery: str = "exactly_once") -> Stream:
    speed = {"topic": "orders.live", "dead_letter_topic": "orders.dead", "delivery": delivery}
    return Stream(name="orders", topic="orders", value_schema="n BIGINT", speed=Speed.model_validate(speed))


def settings(**more: str) -> Settings:
    wanted = {
        "kafka_bootstrap": "broker:9093",
        "s3_access_key": "key",
        "s3_secret_key": "key",
        "bucket": "lake",
        "deployment": "prod",
        "catalog_uri": "jdbc:sqlite:catalog.db",
        **more,
    }
    return Settings.model_validate(wanted)


@pytest.mark.parametrize(("role", "delivery"), EXPECTED)
def test_a_role_has_the_permissions_that_its_work_needs_and_no_other(role: Role, delivery: str) -> None:
    found = acls(role, stream(delivery), settings())
    values = [(item.cluster, item.resource, item.name + "*" * item.prefixed, item.operation) for item in found]
    assert sorted(values) == sorted(EXPECTED[role, delivery])
    assert {role for role, _ in EXPECTED} == set(ROLES)


def test_with_a_cluster_for_the_live_topics_each_permission_is_for_one_of_the_two() -> None:
    two = settings(speed_kafka_bootstrap="other:9093")
    by_cluster = {
        cluster: {item.name for item in acls("speed", stream(), two) if item.cluster == cluster}
        for cluster in ("source", "live")
    }
    assert by_cluster == {
        "source": {"orders", "tidemark-positions", "kafka-cluster"},
        "live": {
            "orders.live",
            "orders.dead",
            "kafka-cluster",
            "__consumer_offsets",
            "__transaction_state",
            "orders.live.markers",
            "tidemark-prod-speed-orders-",
        },
    }


@pytest.mark.parametrize(("role", "made"), [("speed", sink_of), ("replay", replay_sink)])
def test_the_prefixes_and_the_marker_topic_are_those_of_the_deliveries(role: Role, made: object) -> None:
    assert callable(made)
    sink = made(stream(), settings(), "a-topic-id")
    found = {item.resource: item.name for item in acls(role, stream(), settings()) if item.prefixed}
    assert sink.group == found["group"] + "a-topic-id"
    assert found["transactional-id"] == found["group"]
    assert sink.marker_topic in {item.name for item in acls(role, stream(), settings()) if item.operation == "Alter"}


def test_the_command_prints_a_line_of_kafkas_tool_per_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "orders.yaml").write_text(
        "{name: orders, topic: orders, value_schema: n BIGINT,"
        " speed: {topic: orders.live, dead_letter_topic: orders.dead, delivery: exactly_once}}",
        encoding="utf-8",
    )
    (tmp_path / "orders.py").write_text("def transform(records):\n    return records\n", encoding="utf-8")
    known = settings(streams_dir=str(tmp_path), kafka_properties=Secret({"java.sasl.password": "planted"}))  # type: ignore[arg-type]
    monkeypatch.setattr("tidemark.cli.acls.connect", lambda _: known)
    arguments = ["acls", "orders", "--role", "replay", "--role", "maintenance", "--principal", "User:the one"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    head, *lines, last = done.stdout.splitlines()
    assert (head, last) == ("# replay", "# maintenance needs nothing in Kafka")
    assert len(lines) == 11
    begin = "kafka-acls.sh --bootstrap-server broker:9093 --command-config admin.properties --add"
    assert lines[0] == (
        f"{begin} --allow-principal 'User:the one' --operation Describe --topic orders"
        "  # asks for the topic's id, which dead letters name"
    )
    assert lines[-1] == (
        f"{begin} --allow-principal 'User:the one' --operation Write --transactional-id tidemark-prod-replay-orders-"
        " --resource-pattern-type prefixed  # delivers records in transactions"
    )
    assert "planted" not in done.output


def test_an_unknown_role_is_named() -> None:
    done = CliRunner().invoke(app, ["acls", "orders", "--role", "writer"])
    assert done.exit_code == 2
    assert "there is no such role" in done.stderr
