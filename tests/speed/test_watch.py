"""The speed stream's log lines after a batch, for progress in Spark's format."""

import json
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.conftest import MakeStream, Produce
from tidemark.core.errors import ConflictError, ServiceError
from tidemark.definitions.stream import Stream
from tidemark.kafka.topics import describe_topic
from tidemark.settings import Settings
from tidemark.spark.monitor import BatchFigures
from tidemark.speed import stream as speed


def progress(stream: Stream, batch: int, start: int | None, end: int, rows: int) -> dict[str, Any]:
    """Progress of one partition; two of the rows are dead letters."""
    return {
        "batchId": batch,
        "numInputRows": rows,
        "durationMs": {"triggerExecution": 1500, "addBatch": 1000},
        "sources": [
            {
                "startOffset": None if start is None else {stream.topic: {"0": start}},
                "endOffset": {stream.topic: {"0": end}},
                "latestOffset": {stream.topic: {"0": end + 3}},
            }
        ],
        "observedMetrics": {"speed": {"rows": rows, "dead_lettered": 2}},
    }


def log_lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_batch_is_one_log_line_with_range_rows_lag_and_time(
    settings: Settings, make_stream: MakeStream, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = make_stream()
    topic_id = describe_topic(settings.kafka, stream.topic)[0].topic_id
    watch = speed.Watch(stream, settings, topic_id)
    watch(progress(stream, 0, None, 10, 10))
    watch(progress(stream, 1, 10, 14, 4))
    common = {"event": "batch", "layer": "speed", "stream": stream.name, "lag": 3, "seconds": 1.5, "dead_lettered": 2}
    lines = [{key: value for key, value in line.items() if key != "time"} for line in log_lines(capsys)]
    assert lines == [
        {**common, "batch": 0, "rows": 10, "offsets": {"0": [None, 10]}, "published": 8},
        {**common, "batch": 1, "rows": 4, "offsets": {"0": [10, 14]}, "published": 2},
    ]


def test_only_a_hole_before_the_log_start_is_reported_as_lost(
    settings: Settings,
    make_stream: MakeStream,
    produce: Produce,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = make_stream()
    produce(stream.topic, [(None, b"x", 1_700_000_000_000, 0, []) for _ in range(20)])
    topic_id = describe_topic(settings.kafka, stream.topic)[0].topic_id
    watch = speed.Watch(stream, settings, topic_id)
    watch(progress(stream, 1, 4, 8, 3))
    assert [line["event"] for line in log_lines(capsys)] == ["batch"]

    admin = AdminClient({"bootstrap.servers": settings.kafka_bootstrap})
    (deleted,) = admin.delete_records([TopicPartition(stream.topic, 0, 12)]).values()
    deleted.result()
    with monkeypatch.context() as patch:

        def silent(*_: object) -> None:
            raise ServiceError("Kafka does not answer")

        patch.setattr(speed, "watermarks", silent)
        watch(progress(stream, 2, 8, 15, 3))
    watch(progress(stream, 3, 15, 20, 5))
    _, unchecked, _, lost = log_lines(capsys)
    assert (unchecked["event"], unchecked["error"]) == ("unchecked", "Kafka does not answer")
    assert (lost["event"], lost["batch"], lost["partition"], lost["start"], lost["end"]) == ("lost", 2, 0, 8, 12)


def test_another_topic_id_stops_the_stream(settings: Settings, make_stream: MakeStream) -> None:
    stream = make_stream()
    with pytest.raises(ConflictError, match=r"recreated while the stream ran.*expected topic id old"):
        speed.Watch(stream, settings, "old")(progress(stream, 1, 4, 8, 3))


def test_the_monitor_gets_each_batchs_counts_and_end(make_stream: MakeStream) -> None:
    assert speed.figures(progress(make_stream(), 4, 10, 14, 4)) == BatchFigures(
        batch=4, ends={0: 14}, seconds=1.5, records=4, dead_letters=2
    )
