"""The doctor on the local stack: all green, and a red line for each cause."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from pydantic import SecretStr

from tests.command_json import valid_result
from tests.conftest import MakeStream, MakeTopic, Produce
from tests.doctor.lines import lines, of_state, red
from tidemark.inspect.doctor import kafka
from tidemark.installation import PROJECT, TIDEMARK
from tidemark.kafka.reach import ReachedCluster, reach
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.tables.round_trip import known_tables

pytestmark = [pytest.mark.services, pytest.mark.conformance(64)]


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "300", "NO_COLOR": "1", "PYTHONPATH": str(PROJECT / "include")}
    command = [*TIDEMARK, "doctor", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def topics(settings: Settings) -> set[str]:
    found = AdminClient({"bootstrap.servers": settings.kafka_bootstrap}).list_topics(timeout=30).topics
    return {name for name in found if not name.startswith("__")}


def objects(store: ObjectStore) -> set[str]:
    """Keys, without the empty folders that S3Proxy leaves and lists."""
    return {item.key for item in store.list("") if not item.key.endswith("/")}


def test_on_a_local_stack_every_line_is_green_and_nothing_is_left(
    settings: Settings, store: ObjectStore, make_stream: MakeStream, produce: Produce
) -> None:
    stream = make_stream(time_zone="America/New_York")
    produce(stream.topic, [(None, b'{"n": 1}', 1_700_000_000_000, 0, ())])
    before = topics(settings), objects(store), known_tables(settings)

    done = run_command(stream.name, "--json")

    assert done.returncode == 0, done.stdout + done.stderr
    value: dict[str, Any] = valid_result("doctor", done.stdout)
    states = {(line["subject"], line["name"]): line["state"] for line in value["lines"]}
    assert {key: state for key, state in states.items() if state != "ok"} == {}
    assert value["healthy"] is True
    assert value["stream"] == stream.name
    assert value["roles"] == ["archive", "speed", "replay", "reconcile", "reader", "maintenance"]
    assert {
        ("Kafka", "connection"),
        ("Kafka", "clock"),
        ("Kafka", f"topic {stream.topic}"),
        ("Kafka", f"settings of {stream.name}"),
        ("S3", "clock"),
        ("S3", "conditional put"),
        ("S3", "conditional multipart upload"),
        ("S3", "conditional delete"),
        ("catalog", "commit"),
        ("machine", "Java"),
        ("machine", "Spark jars"),
        ("machine", "time-zone data"),
    } <= states.keys()
    after = topics(settings), objects(store), known_tables(settings)
    assert after == before


def test_a_broker_that_is_down_is_one_red_line(
    settings: Settings, make_stream: MakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = settings.model_copy(update={"kafka_bootstrap": "127.0.0.1:1"})
    found = lines(nobody, make_stream().name, monkeypatch)
    line = red(found)
    assert (line.subject, line.name) == ("Kafka", "connection")
    assert line.found.startswith("Kafka is unreachable: ")
    assert "Connection refused" in line.found
    skipped = of_state(found, "skipped")
    assert ("Kafka", "clock") in skipped
    assert {subject for subject, _ in skipped} == {"Kafka"}


def test_a_server_that_is_down_is_one_red_line_and_the_catalog_s_commit_is_skipped(
    settings: Settings, make_stream: MakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = settings.model_copy(update={"s3_endpoint": "http://127.0.0.1:1"})
    found = lines(nobody, make_stream().name, monkeypatch)
    line = red(found)
    assert (line.subject, line.name) == ("S3", "connection")
    assert "http://127.0.0.1:1" in line.hint
    assert ("catalog", "commit") in of_state(found, "skipped")


def test_a_wrong_key_is_one_red_line_that_names_the_settings(
    settings: Settings, make_stream: MakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = settings.model_copy(update={"s3_secret_key": SecretStr("not-the-secret")})
    line = red(lines(wrong, make_stream().name, monkeypatch))
    assert (line.subject, line.name) == ("S3", "connection")
    assert "TIDEMARK_S3_SECRET_KEY" in line.hint
    assert "not-the-secret" not in str(line)


def test_a_missing_bucket_is_one_red_line(
    settings: Settings, make_stream: MakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = red(lines(settings.model_copy(update={"bucket": "absent"}), make_stream().name, monkeypatch))
    assert (line.subject, line.name) == ("S3", "connection")
    assert "TIDEMARK_BUCKET" in line.hint


def test_a_missing_source_topic_is_one_red_line_and_missing_outputs_are_none(
    settings: Settings, make_stream: MakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = make_stream(topic="absent", speed={"topic": "absent.live", "dead_letter_topic": "absent.dead"})
    found = lines(settings, stream.name, monkeypatch)
    line = red(found)
    assert (line.subject, line.name) == ("Kafka", "topic absent")
    assert f"--bootstrap-server {settings.kafka_bootstrap} --create --topic absent" in line.hint
    live = next(line for line in found if line.name == "topic absent.live")
    assert (live.state, "may create it" in live.found) == ("ok", True)


def test_missing_jars_are_one_red_line(
    settings: Settings, make_stream: MakeStream, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    line = red(lines(settings.model_copy(update={"jars_dir": tmp_path}), make_stream().name, monkeypatch))
    assert (line.subject, line.name) == ("machine", "Spark jars")
    assert "make install" in line.hint


def test_a_jar_of_another_version_of_spark_is_one_red_line(
    settings: Settings, make_stream: MakeStream, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for jar in settings.jars_dir.glob("*.jar"):
        name = "spark-sql-kafka-0-10_2.13-3.5.1.jar" if jar.name.startswith("spark-sql-kafka") else jar.name
        (tmp_path / name).touch()
    line = red(lines(settings.model_copy(update={"jars_dir": tmp_path}), make_stream().name, monkeypatch))
    assert (line.subject, line.name) == ("machine", "Spark jars")
    assert "spark-sql-kafka-0-10_2.13-3.5.1.jar" in line.found


def test_a_broken_definition_is_one_red_line_that_names_the_stream(
    settings: Settings, make_stream: MakeStream, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stream = make_stream()  # the broken file has a folder of its own: Airflow's DAGs read the stack's in other tests
    text = (settings.streams_dir / f"{stream.name}.yaml").read_text(encoding="utf-8")
    (tmp_path / f"{stream.name}.yaml").write_text(text + "nonsense: 1\n", encoding="utf-8")
    line = red(lines(settings.model_copy(update={"streams_dir": tmp_path}), stream.name, monkeypatch))
    assert (line.subject, line.name) == ("settings", f"stream {stream.name}")
    assert "unknown key" in line.found


def test_a_catalog_that_can_not_be_opened_is_one_red_line(
    settings: Settings, make_stream: MakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = settings.model_copy(update={"catalog_uri": "jdbc:sqlite:/no/such/folder/catalog.db"})
    line = red(lines(nowhere, make_stream().name, monkeypatch))
    assert (line.subject, line.name) == ("catalog", "connection")


def test_a_dangerous_setting_of_a_topic_is_a_warning_with_the_command_that_corrects_it(
    settings: Settings, make_stream: MakeStream, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = make_topic(retention_ms="60000")
    stream = make_stream(speed={"topic": live, "dead_letter_topic": make_topic()})
    found = lines(settings, stream.name, monkeypatch, ["speed"])
    assert of_state(found, "failed", "skipped") == []
    (line,) = (line for line in found if line.state == "warning")
    assert f"topic {live}: retention.ms is 60000" in line.found
    assert line.hint.startswith(
        f"kafka-configs.sh --bootstrap-server {settings.kafka_bootstrap} --alter --topic {live}"
    )


def test_a_role_that_reads_no_kafka_checks_no_kafka(
    settings: Settings, make_stream: MakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = settings.model_copy(update={"kafka_bootstrap": "127.0.0.1:1"})
    found = lines(nobody, make_stream().name, monkeypatch, ["maintenance"])
    assert of_state(found, "failed", "skipped") == []
    assert "Kafka" not in {line.subject for line in found}


def test_a_broker_that_advertises_another_address_is_named(
    settings: Settings, make_stream: MakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def elsewhere(cluster: Any, **options: Any) -> ReachedCluster:
        found = reach(cluster, **options)
        return ReachedCluster(cluster_id=found.cluster_id, brokers=(*found.brokers, "127.0.0.1:1"))

    monkeypatch.setattr(kafka, "reach", elsewhere)
    line = red(lines(settings, make_stream().name, monkeypatch, ["archive"]))
    assert (line.subject, line.name) == ("Kafka", "broker 127.0.0.1:1")
    assert "advertised.listeners" in line.hint
