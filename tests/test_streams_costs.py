"""What ``tidemark streams`` prints about costs: without a server for one partition, else from Kafka's load."""

import json
import time
from pathlib import Path

import pytest
import yaml
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.conftest import TRANSFORM, MakeTopic, Produce
from tidemark.cli import app as command_line
from tidemark.core.capacity import Load
from tidemark.core.errors import ServiceError
from tidemark.definitions.stream import Stream
from tidemark.settings import Settings

ASSUMED = "(S3 Standard in us-east-1, list price of 2025)"


@pytest.fixture(autouse=True)
def _same_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' own session, and no other table to compare with."""
    monkeypatch.setattr("tidemark.spark.session.bare_session", lambda _: spark)
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    monkeypatch.setenv("COLUMNS", "300")


def printed(folder: Path, monkeypatch: pytest.MonkeyPatch, deployment: Settings | None, **keys: object) -> list[str]:
    """The lines after the verdict on the first stream; of ``orders`` with these keys, if it is the only one."""
    wanted = {
        "name": "orders",
        "topic": "orders",
        "value_schema": "id BIGINT",
        "speed": {"topic": "orders.live", "dead_letter_topic": "orders.dead-letter"},
        **keys,
    }
    (folder / "orders.yaml").write_text(yaml.safe_dump(wanted), encoding="utf-8")
    (folder / "orders.py").write_text(TRANSFORM, encoding="utf-8")
    own = None if deployment is None else deployment.model_copy(update={"streams_dir": folder})
    monkeypatch.setattr("tidemark.cli.streams._deployment", lambda _: own)
    monkeypatch.setenv("TIDEMARK_STREAMS_DIR", str(folder))
    done = CliRunner().invoke(command_line.app, ["streams"])
    assert done.exit_code == 0, done.output
    verdict, *lines = done.stdout.splitlines()
    assert " ok: " in verdict
    return lines


def test_without_a_server_the_estimate_is_for_one_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # An archive batch: 39 requests, 15 of them writes and lists, 22 reads. A speed batch: 24, of them 12 and 10. One
    # heartbeat for each. Each stream reads its lease 17,280 times.
    requests = 8_640 * (39 + 1) + 86_400 * (24 + 1) + 2 * 17_280
    dollars = (8_640 * 16 + 86_400 * 13) * 5e-6 + (8_640 * 22 + 86_400 * 10 + 2 * 17_280) * 0.4e-6
    (line,) = printed(tmp_path, monkeypatch, None)
    assert line == (
        "  S3 in a day with 1 partition and records at all times: at most 8,640 objects,"
        f" {requests:,} requests, ${dollars:,.2f} {ASSUMED}"
    )


def test_a_costly_definition_names_the_key_and_what_it_would_cost_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speed = {"topic": "orders.live", "dead_letter_topic": "orders.dead-letter", "trigger_seconds": 0}
    _, warning = printed(tmp_path, monkeypatch, None, speed=speed)
    assert warning == (
        "  costly: its requests cost more than $10 a day. speed.trigger_seconds: 1 in place of 0 makes it 8,640 objects"
        " and $6.74 a day"
    )


@pytest.mark.services
def test_with_a_deployment_kafka_shows_partitions_and_the_records_of_the_last_day(
    settings: Settings, tmp_path: Path, make_topic: MakeTopic, produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, now_ms = make_topic(3), round(time.time() * 1000)
    old = [(None, b"{}", now_ms - 90_000_000, partition, ()) for partition in range(3)]
    produce(topic, old + [(None, json.dumps({"id": n}).encode(), now_ms, n % 2, ()) for n in range(50)])

    (line,) = printed(tmp_path, monkeypatch, settings, topic=topic)

    # 50 records come in 50 batches at most, and fill 50 objects at most.
    assert line.startswith("  S3 in a day with 3 partitions and 50 records: at most 50 objects, ")


@pytest.mark.services
def test_a_topic_that_does_not_exist_yet_counts_as_one_partition(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (line,) = printed(tmp_path, monkeypatch, settings, topic="nosuch")
    assert line.startswith("  S3 in a day with 1 partition and records at all times: ")


@pytest.mark.services
def test_kafka_that_does_not_answer_is_asked_once_and_is_no_error_of_a_definition(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def last_day(_kafka: object, stream: Stream, _now: object) -> Load:
        asked.append(stream.name)
        raise ServiceError("Kafka does not answer", where="a broker")

    monkeypatch.setattr("tidemark.inspect.stream_costs.last_day", last_day)
    (tmp_path / "bookings.yaml").write_text(
        yaml.safe_dump(
            {
                "name": "bookings",
                "topic": "bookings",
                "value_schema": "id BIGINT",
                "speed": {"topic": "bookings.live", "dead_letter_topic": "bookings.dead-letter"},
            }
        ),
        encoding="utf-8",
    )
    (tmp_path / "bookings.py").write_text(TRANSFORM, encoding="utf-8")
    first, *_, last = printed(tmp_path, monkeypatch, settings)
    assert first == "  cannot estimate costs from Kafka's load: Kafka does not answer [a broker]"
    assert last.startswith("  S3 in a day with 1 partition and records at all times: ")
    assert asked == ["bookings"]
