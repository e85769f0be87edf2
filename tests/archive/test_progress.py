"""The archive stream's log lines, metrics over OTLP, and heartbeat."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.archive.conftest import through
from tests.archive.oracle import Oracle
from tests.archive.reported import events, heartbeat
from tests.batch.logs import Log, recreate
from tests.collector import Collector, attributes
from tests.conftest import MakeStream, MakeTopic, Produce, Record
from tests.faults import FaultProxy, Rule
from tidemark.archive.manifests import read_manifests
from tidemark.archive.stream.driver import archive
from tidemark.core.errors import ConflictError
from tidemark.core.heartbeat import parse_heartbeat
from tidemark.core.instruments import STREAM_INSTRUMENTS
from tidemark.core.layout import Layout
from tidemark.installation import PROJECT
from tidemark.kafka.positions import Backlog, backlog
from tidemark.kafka.topics import describe_topic
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.spark import monitor as monitoring
from tidemark.spark.monitor import BatchFigures, Monitor

pytestmark = pytest.mark.conformance(55)

HOUR_MS = 3_600_000
ATTRIBUTES = {"tidemark.layer": "archive"}


def now_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


def test_metrics_and_log_lines_of_a_run_count_what_was_produced_and_written(
    spark: SparkSession,
    settings: Settings,
    make_stream: MakeStream,
    produce: Produce,
    collector: Collector,
    capfd: pytest.CaptureFixture[str],
) -> None:
    stream = make_stream(
        partitions=2,
        archive={
            "partitioner": {"type": "time", "path_format": "'hour='HH"},
            "flush_size": 4,
            "max_offsets_per_trigger": 40,
        },
    )
    noon = int(datetime(2013, 1, 15, 12, tzinfo=UTC).timestamp() * 1000)
    # partition 0 has three paths in turn, partition 1 one: 10 records each in the second batch, 20 in the first
    sent: list[Record] = [
        (None, b"%d" % n, noon + (n // 2 % 3 * HOUR_MS if n % 2 == 0 else 0), n % 2, []) for n in range(60)
    ]
    produce(stream.topic, sent)
    before = now_ms()
    archive(spark, stream, settings, available_now=True)
    after = now_ms()

    objects = Oracle(settings, stream.name).keys("data")
    lines = events(capfd.readouterr().out, "batch")
    page = (PROJECT / "docs" / "how-to" / "watch-streams.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`(\w+)`", page))
    assert set().union(*lines) - documented == set()
    assert [(line["records"], line["open_files"], line["lag"], line["retries"]) for line in lines] == [
        (40, 3, 20, 0),
        (20, 3, 0, 0),
    ]
    assert sum(line["files"] for line in lines) == sum(line["uploads"] for line in lines) == len(objects)
    assert sum(line["bytes"] for line in lines) == sum(objects.values())
    assert all(0 < line["upload_ms_p50"] <= line["upload_ms_max"] < after - before for line in lines)
    # The oldest record after the first batch is of noon; after the second one there is none.
    assert (before - noon) / 1000 <= lines[0]["lag_seconds"] <= (after - noon) / 1000
    assert lines[1]["lag_seconds"] == 0

    assert {path for path, _ in collector.requests} == {"/v1/metrics"}
    resource = collector.requests[-1][1].resource_metrics[0].resource
    assert attributes(resource)["service.name"] == "tidemark"
    metrics = collector.newest()
    wanted = {"tidemark.deployment": settings.deployment, "tidemark.stream": stream.name, **ATTRIBUTES}
    sums = {name: metric.sum for name, metric in metrics.items() if metric.HasField("sum")}
    assert all([attributes(point) for point in item.data_points] == [wanted] for item in sums.values())
    assert all(item.is_monotonic for item in sums.values())
    assert {name: item.data_points[0].as_int for name, item in sums.items()} == {
        "tidemark.batches": 2,
        "tidemark.records": 60,
        "tidemark.dead_letters": 0,
        "tidemark.io": sum(objects.values()),
        "tidemark.files": len(objects),
        "tidemark.s3.retries": 0,
        "tidemark.overflow.records": 0,
        "tidemark.out_of_bounds.records": 0,
        "tidemark.unreadable_times.records": 0,
    }
    gauges = {name: metric.gauge.data_points for name, metric in metrics.items() if metric.HasField("gauge")}
    assert all([attributes(point) for point in points] == [wanted] for points in gauges.values())
    assert {name: points[0].as_int or points[0].as_double for name, points in gauges.items()} == {
        "tidemark.open_files": 3,
        "tidemark.lag.records": 0,
        "tidemark.lag.time": 0,
    }
    (uploads,) = metrics["tidemark.s3.upload.duration"].histogram.data_points
    (batches,) = metrics["tidemark.batch.duration"].histogram.data_points
    assert (uploads.count, batches.count) == (len(objects), 2)
    assert 0 < uploads.min <= uploads.max <= batches.max < (after - before) / 1000
    assert batches.sum == pytest.approx(sum(line["seconds"] for line in lines), abs=0.01)


@pytest.mark.conformance(34)
def test_records_beyond_a_bound_are_counted_in_manifest_log_line_metrics_and_heartbeat(
    spark: SparkSession,
    settings: Settings,
    make_stream: MakeStream,
    produce: Produce,
    store: ObjectStore,
    collector: Collector,
    capfd: pytest.CaptureFixture[str],
) -> None:
    stream = make_stream(
        event_time={"extractor": "record_field", "field": "$.at", "format": "epoch_ms", "max_distance_days": 1},
        archive={
            "partitioner": {"type": "field", "fields": ["$.n"]},
            "max_folders": 3,
            "max_offsets_per_trigger": 10,
            "bounds_alarm_hours": 2,
        },
    )
    now, day_ms = now_ms(), 24 * HOUR_MS
    far = {7, 8, 12}
    values = [b'{"n": %d, "at": %d}' % (n, now - (2 * day_ms if n in far else 0)) for n in range(13)]
    produce(stream.topic, [(None, value, now, 0, []) for value in values])
    before = datetime.now(UTC)
    archive(spark, stream, settings, available_now=True)
    after = datetime.now(UTC)

    layout = Layout(prefix=settings.prefix, stream=stream.name)
    manifests = read_manifests(store, layout)
    assert [sum(file.out_of_bounds_rows for file in item.files) for item in manifests] == [2, 1]
    (overflow,) = {layout.parse_data_key(file.key).path for file in manifests[0].files if file.rows > 1}
    assert overflow == "n=~overflow"
    assert {layout.parse_data_key(file.key).path for file in manifests[1].files} == {"n=10", "n=11", "n=12"}
    out = capfd.readouterr().out
    counts = [(7, 2), (0, 1)]
    for event in ("batch", "bounds exceeded"):
        assert [(line["overflow_rows"], line["out_of_bounds_rows"]) for line in events(out, event)] == counts
    assert {line["level"] for line in events(out, "bounds exceeded")} == {"warning"}
    metrics = collector.newest()
    for name, expected in (("overflow", 7), ("out_of_bounds", 3)):
        assert metrics[f"tidemark.{name}.records"].sum.data_points[0].as_int == expected
    heartbeat = parse_heartbeat(store.get(layout.heartbeat_key("archive")) or b"", where="heartbeat")
    assert (heartbeat.overflow_rows, heartbeat.out_of_bounds_rows) == (7, 3)
    assert heartbeat.alarm_until is not None
    assert before <= heartbeat.alarm_until - timedelta(hours=2) <= after


def test_a_restart_keeps_an_alarm_that_has_not_ended(settings: Settings, make_stream: MakeStream) -> None:
    stream = make_stream()

    def run(overflow: int = 0, outside: int = 0) -> tuple[Any, ...]:
        with Monitor(stream, settings, layer="archive") as monitor:
            monitor.batch(BatchFigures(batch=0, ends={}, seconds=1, overflow_rows=overflow, out_of_bounds_rows=outside))
        found = heartbeat(settings, stream)
        return found["overflow_rows"], found["out_of_bounds_rows"], found["alarm_until"]

    *counts, until = run(overflow=7)
    assert counts == [7, 0]
    assert run() == (7, 0, until)
    *counts, later = run(outside=2)
    assert counts == [7, 2]
    assert later > until
    body = Oracle(settings, stream.name).body(f"heartbeats/{stream.name}/archive.json")
    ended = replace(parse_heartbeat(body, where="here"), alarm_until=datetime.now(UTC))
    key = Layout(prefix=settings.prefix, stream=stream.name).heartbeat_key("archive")
    ObjectStore(settings).put(key, ended.to_json())
    assert run() == (0, 0, None)


def test_a_collector_receives_every_instrument_that_the_reference_lists(
    settings: Settings, make_stream: MakeStream, collector: Collector
) -> None:
    with Monitor(make_stream(), settings, layer="archive") as monitor:
        monitor.batch(BatchFigures(batch=0, ends={}, seconds=1, upload_seconds=(0.5,)))
    kinds = {"sum": "counter", "histogram": "histogram", "gauge": "gauge"}
    received = {(metric.name, kinds[metric.WhichOneof("data")], metric.unit) for metric in collector.newest().values()}
    assert received == {(item.name, item.kind, item.unit) for item in STREAM_INSTRUMENTS}


def test_a_repeated_s3_request_is_counted_as_a_retry(
    spark: SparkSession,
    settings: Settings,
    make_stream: MakeStream,
    produce: Produce,
    proxy: FaultProxy,
    capfd: pytest.CaptureFixture[str],
) -> None:
    stream = make_stream()
    produce(stream.topic, [(None, b"{}", now_ms(), 0, [])] * 5)
    proxy.add(Rule(method="PUT", pattern="/data/", times=2, answer=(503, "SlowDown")))
    proxy.add(Rule(method="PUT", pattern="/manifests/", answer=(500, "InternalError")))
    archive(spark, stream, through(settings, proxy), available_now=True)
    puts = [(target.split("/")[2], status) for method, target, status in proxy.log if method == "PUT"]
    (line,) = events(capfd.readouterr().out, "batch")
    expected = sum(status >= 500 for place, status in puts if place in {"data", "manifests"})
    assert (line["retries"], line["uploads"], expected) == (3, 1, 3)


def test_an_unreachable_collector_is_logged_once(
    spark: SparkSession,
    settings: Settings,
    make_stream: MakeStream,
    produce: Produce,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://me:secret@127.0.0.1:9/v1/metrics")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "1")
    stream = make_stream(archive={"max_offsets_per_trigger": 2})
    produce(stream.topic, [(None, b"{}", now_ms(), 0, [])] * 6)
    archive(spark, stream, settings, available_now=True)
    captured = capfd.readouterr()
    assert len(events(captured.out, "batch")) == 3
    (line,) = events(captured.out, "metrics not exported")
    fields = (line["level"], line["layer"], line["stream"], line["collector"])
    assert fields == ("warning", "archive", stream.name, "127.0.0.1:9")
    assert "secret" not in captured.out + captured.err
    assert re.search(r"export(ing)? metrics", captured.err) is None


def test_the_heartbeat_of_an_ended_run_is_stopped_with_its_positions(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce
) -> None:
    stream = make_stream(partitions=2, version=3)
    produce(stream.topic, [(None, b"{}", now_ms(), n % 2, []) for n in range(7)])
    before = datetime.now(UTC)
    archive(spark, stream, settings, available_now=True)
    found = heartbeat(settings, stream)
    assert before <= datetime.fromisoformat(found.pop("time")) <= datetime.now(UTC)
    assert found == {
        "format": 3,
        "stream": stream.name,
        "deployment": settings.deployment,
        "layer": "archive",
        "state": "stopped",
        "version": 3,
        "writer": Oracle(settings, stream.name).archive().manifests[0]["writer"],
        "batch": 0,
        "positions": {"0": 4, "1": 3},
        "lag_records": 0,
        "lag_seconds": 0.0,
        "overflow_rows": 0,
        "out_of_bounds_rows": 0,
        "alarm_until": None,
        "error": None,
        "extents": [
            {"log": {"topic": log.topic, "topic_id": log.topic_id, "partition": log.partition}, "range": [0, end]}
            for log, end in zip(describe_topic(settings.kafka, stream.topic), (4, 3), strict=True)
        ],
        "unreadable_times": 0,
        "unreadable_times_share": 0.0,
        "unreadable_times_until": None,
    }


@pytest.mark.conformance(30)
def test_heartbeats_keep_what_was_seen_of_a_topic_that_is_recreated(
    settings: Settings, make_stream: MakeStream, produce: Produce
) -> None:
    stream = make_stream(partitions=2)
    log = Log(stream=stream, settings=settings, produce_records=produce)

    def beat(topic_id: str) -> list[tuple[str, int, list[int]]]:
        with Monitor(stream, settings, layer="archive") as monitor:
            monitor.started("one", {}, topic_id)
            monitor.batch(BatchFigures(batch=0, ends={}, seconds=1))
        seen = heartbeat(settings, stream)["extents"]
        return sorted((item["log"]["topic_id"], item["log"]["partition"], item["range"]) for item in seen)

    produce(stream.topic, [(None, b"{}", now_ms(), partition, []) for partition in (0, 0, 1)])
    before = log.owner().topic_id
    of_before = [(before, 0, [0, 2]), (before, 1, [0, 1])]
    assert beat(before) == of_before
    recreate(log)
    produce(stream.topic, [(None, b"{}", now_ms(), 0, [])] * 5)
    assert beat(before) == of_before  # a stream that has not noticed it yet
    after = log.owner().topic_id
    assert beat(after) == sorted([*of_before, (after, 0, [0, 5])])


def test_the_heartbeat_of_a_run_that_failed_has_the_error(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, make_topic: MakeTopic, produce: Produce
) -> None:
    stream = make_stream()
    produce(stream.topic, [(None, b"{}", now_ms(), 0, [])])
    archive(spark, stream, settings, available_now=True)
    with pytest.raises(ConflictError) as caught:
        archive(spark, stream.model_copy(update={"topic": make_topic(1)}), settings, available_now=True)
    found = heartbeat(settings, stream)
    assert (found["state"], found["error"]) == ("failed", f"ConflictError: {caught.value}")


def test_an_idle_stream_beats_and_its_lag_grows_with_new_records(
    settings: Settings, make_stream: MakeStream, produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = make_stream(partitions=2)
    produce(stream.topic, [(None, b"{}", now_ms(), n % 2, []) for n in range(4)])
    with Monitor(stream, settings, layer="archive") as monitor:
        assert heartbeat(settings, stream)["state"] == "running"
        monitor.started("one", {0: 2, 1: 2})
        monitor.beat()  # something changed
        first = heartbeat(settings, stream)
        assert (first["writer"], first["positions"], first["batch"]) == ("one", {"0": 2, "1": 2}, None)
        monkeypatch.setattr(monitoring, "BEAT_S", 1e9)
        monitor.beat()  # nothing changed, and 10 s have not passed
        assert heartbeat(settings, stream) == first
        timestamp_ms = now_ms() - 5000
        produce(stream.topic, [(None, b"{}", timestamp_ms + 900, 0, []), (None, b"{}", timestamp_ms, 1, [])] * 2)
        monkeypatch.setattr(monitoring, "BEAT_S", 0)
        monitor.beat()
        second = heartbeat(settings, stream)
        assert (second["state"], second["lag_records"]) == ("running", 4)
        assert 5 <= second["lag_seconds"] <= (now_ms() - timestamp_ms) / 1000
        assert second["time"] > first["time"]


def test_a_failed_heartbeat_is_logged_and_the_stream_continues(
    spark: SparkSession,
    settings: Settings,
    make_stream: MakeStream,
    produce: Produce,
    proxy: FaultProxy,
    capfd: pytest.CaptureFixture[str],
) -> None:
    stream = make_stream()
    produce(stream.topic, [(None, b"{}", now_ms(), 0, [])] * 5)
    proxy.add(Rule(method="PUT", pattern="/heartbeats/", times=1000, answer=(503, "SlowDown")))
    archive(spark, stream, through(settings, proxy), available_now=True)
    oracle = Oracle(settings, stream.name)
    assert len(oracle.archive().rows) == 5
    assert oracle.keys("heartbeats") == {}
    lines = events(capfd.readouterr().out, "heartbeat not written")
    assert len(lines) >= 2  # at the start and at the end
    assert all("SlowDown" in line["error"] and line["stream"] == stream.name for line in lines)


def test_lag_without_an_answer_from_kafka_is_unknown_and_no_failure(
    settings: Settings, make_stream: MakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = make_stream()
    monkeypatch.setattr(monitoring, "LAG_TIMEOUT_S", 0.2)
    unreachable = settings.model_copy(update={"kafka_bootstrap": "127.0.0.1:9"})
    with Monitor(stream, unreachable, layer="archive") as monitor:
        lag = monitor.batch(BatchFigures(batch=7, ends={0: 3}, seconds=1))
    assert (lag.records, lag.seconds) == (None, None)
    found = heartbeat(settings, stream)
    assert (found["batch"], found["lag_records"], found["lag_seconds"]) == (7, None, None)
    body = Oracle(settings, stream.name).body(f"heartbeats/{stream.name}/archive.json")
    assert parse_heartbeat(body, where="here").to_json() == body


def test_the_backlog_counts_unread_partitions_and_finds_the_oldest_record(
    settings: Settings, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic(3)
    produce(topic, [(None, b"x", 1000 + n, n % 2, []) for n in range(10)])  # partition 2 stays empty
    there = settings.kafka
    extents = {0: (0, 5), 1: (0, 5), 2: (0, 0)}
    for positions, offsets, oldest_ms in (
        ({}, 10, 1000),
        ({0: 5}, 5, 1001),
        ({0: 3, 1: 4}, 3, 1006),
        ({0: 5, 1: 5, 2: 0}, 0, None),
    ):
        expected = Backlog(offsets=offsets, oldest_ms=oldest_ms, extents=extents)
        assert backlog(there, topic, positions, timeout_s=60) == expected
