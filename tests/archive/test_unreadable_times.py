"""Records whose time field can't be read, as the archive stream counts them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.archive.reported import events, heartbeat
from tests.collector import Collector
from tests.conftest import MakeStream, Produce
from tidemark.archive.manifests import read_manifests
from tidemark.archive.stream.driver import archive
from tidemark.core.layout import Layout
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.spark.monitor import BatchFigures, Monitor

pytestmark = pytest.mark.conformance(76)


def test_times_that_can_not_be_read_are_counted_by_day_and_raise_an_alarm_above_the_share(
    spark: SparkSession,
    settings: Settings,
    make_stream: MakeStream,
    produce: Produce,
    store: ObjectStore,
    collector: Collector,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Seconds are expected. Of 16 records, one has milliseconds, one a text and one none; a tombstone has no field."""
    stream = make_stream(
        event_time={
            "extractor": "record_field",
            "field": "$.at",
            "format": "epoch_s",
            "unreadable_alarm_share": 0.02,
        },
        archive={"max_offsets_per_trigger": 8, "bounds_alarm_hours": 2},
        time_zone="UTC",
    )
    monday, tuesday = (int(datetime(2013, 1, day, 12, tzinfo=UTC).timestamp()) for day in (14, 15))
    values: list[bytes | None] = [b'{"at": %d}' % monday for _ in range(16)]
    values[2], values[7], values[9], values[12] = b'{"at": %d}' % (monday * 1000), b'{"at": "soon"}', b"{}", None
    moments = [tuesday if at in {2, 12} else monday for at in range(16)]
    produce(stream.topic, [(None, value, ms * 1000, 0, []) for value, ms in zip(values, moments, strict=True)])
    before = datetime.now(UTC)
    archive(spark, stream, settings, available_now=True)
    after = datetime.now(UTC)

    manifests = read_manifests(store, Layout(prefix=settings.prefix, stream=stream.name))
    assert [
        {rows.day.day: (rows.rows, rows.unreadable_times) for file in item.files for rows in file.days}
        for item in manifests
    ] == [{14: (7, 1), 15: (1, 1)}, {14: (7, 1), 15: (1, 0)}]
    assert [line["unreadable_times"] for line in events(capfd.readouterr().out, "batch")] == [2, 1]
    assert collector.newest()["tidemark.unreadable_times.records"].sum.data_points[0].as_int == 3
    found = heartbeat(settings, stream)
    assert (found["unreadable_times"], found["unreadable_times_share"], found["alarm_until"]) == (3, 3 / 16, None)
    until = datetime.fromisoformat(found["unreadable_times_until"])
    assert before <= until - timedelta(hours=2) <= after


def test_a_restart_keeps_the_alarm_about_unreadable_times(settings: Settings, make_stream: MakeStream) -> None:
    stream = make_stream(event_time={"extractor": "record_field", "field": "$.at"})

    def run(records: int, unreadable: int) -> tuple[Any, ...]:
        with Monitor(stream, settings, layer="archive") as monitor:
            monitor.batch(BatchFigures(batch=0, ends={}, seconds=1, records=records, unreadable_times=unreadable))
        found = heartbeat(settings, stream)
        return found["unreadable_times"], found["unreadable_times_share"], found["unreadable_times_until"]

    assert run(1_000, 10) == (10, 0.01, None)
    *counts, until = run(1_000, 11)
    assert counts == [11, 0.011]
    assert until is not None
    assert run(500, 2) == (13, 0.004, until)
