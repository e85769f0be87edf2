"""Records of every value format, their folders named by hostile values: from Kafka to a rebuilt day and a live row."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.archive.oracle import Oracle
from tests.batch.logs import MONDAY, TUESDAY, at
from tests.conftest import MakeStream, Produce, Record
from tests.spark.avro import text, varint
from tests.spark.rows import kafka_rows
from tidemark.archive.stream.driver import archive
from tidemark.definitions.stream import Stream
from tidemark.reconcile.plan.step import finalize_plan_run, plan_run
from tidemark.reconcile.rebuild.step import rebuild_run
from tidemark.reconcile.refill import refill_run
from tidemark.reconcile.results import REFILL
from tidemark.run import Run
from tidemark.settings import Settings
from tidemark.spark.process import classify, load_transform
from tidemark.spark.records import records
from tidemark.speed.output import output
from tidemark.speed.record_limits import RecordLimits
from tidemark.tables.columns import branch_name

HOSTILE = (
    *("", "null", "..", "../..", "../../../manifests/x", "/", "a//b", "/etc/passwd", "%", "%2F", "%25", "a b", "a+b"),
    *(
        "*",
        "{a,b}",
        "[x]",
        "\\",
        "?",
        ":",
        "#",
        "<script>alert(1)</script>",
        "'; DROP TABLE x; --",
        "=",
        "a=b",
        "~empty",
    ),
    *("\u0000", "\n", "\u202e", "é", "e\u0301", "東京", "🌊", "_hidden", ".hidden", "x._COPYING_"),
    *("__HIVE_DEFAULT_PARTITION__", "x" * 101, "x" * 102, "k" * 1_000_000),
)
SCHEMA = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "name", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
# The same records later on: a wider field, a new one, and one under another name.
LATER = {
    **SCHEMA,
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "carrier", "type": ["null", "string"], "default": None},
        {"name": "title", "type": "string", "aliases": ["name"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
TIME = {"extractor": "record_field", "field": "$.at"}
FORMATS: dict[str, dict[str, Any]] = {
    "json": {"value_schema": "id INT, name STRING, at TIMESTAMP", "event_time": TIME},
    "avro": {"value_format": "avro", "avro_schema_file": "events.avsc", "value_schema": None, "event_time": TIME},
}
CHANGED = FORMATS["avro"] | {"avro_schema_file": "later.avsc", "avro_earlier_schema_files": ["events.avsc"]}


def write_schemas(settings: Settings) -> None:
    for name, schema in (("events", SCHEMA), ("later", LATER)):
        (settings.streams_dir / f"{name}.avsc").write_text(json.dumps(schema), encoding="utf-8")


def of_json(number: int, name: str, ms: int) -> bytes:
    moment = datetime.fromtimestamp(ms / 1000, UTC).isoformat()
    return json.dumps({"id": number, "name": name, "at": moment}).encode()


def of_avro(number: int, name: str, ms: int) -> bytes:
    return varint(number) + text(name) + varint(ms)


def on_tuesday(values: Sequence[bytes | None]) -> list[Record]:
    """Records with a timestamp of Tuesday, whatever their values say."""
    return [(b"k", value, at(TUESDAY, 9), 0, []) for value in values]


def rebuilt(spark: SparkSession, stream: Stream, settings: Settings) -> Run:
    """Monday and Tuesday on their audit branch."""
    run = Run.open(stream.name, "run-1", settings)
    plan_run(run, [MONDAY, TUESDAY], False)
    refill_run(run, spark)
    assert run.require(REFILL).rows == 0
    finalize_plan_run(run)
    rebuild_run(run, spark)
    return run


def rows(spark: SparkSession, settings: Settings, table: str, *columns: str) -> list[tuple[Any, ...]]:
    frame = spark.read.option("branch", branch_name("run-1")).table(f"{settings.catalog}.{settings.namespace}.{table}")
    return sorted(tuple(row) for row in frame.selectExpr(*columns).collect())


@pytest.mark.parametrize(("value_format", "encode"), [("json", of_json), ("avro", of_avro)])
@pytest.mark.conformance(9, 16)
def test_hostile_values_name_folders_below_the_stream_and_rebuild_every_record(
    spark: SparkSession,
    settings: Settings,
    make_stream: MakeStream,
    produce: Produce,
    value_format: str,
    encode: Callable[[int, str, int], bytes],
) -> None:
    write_schemas(settings)
    stream = make_stream(
        **FORMATS[value_format],
        time_zone="America/New_York",
        archive={"partitioner": {"type": "field", "fields": ["$.name"]}},
    )
    good = [encode(number, name, at(MONDAY, 9)) for number, name in enumerate(HOSTILE)]
    bad: list[bytes | None] = [None, b"", good[1] + b"\x00", good[1][:-1]]
    produce(stream.topic, on_tuesday([*good, *bad]))
    archive(spark, stream, settings, available_now=True)

    folders = {}
    for key in Oracle(settings, stream.name).keys("data"):
        prefix, name = f"data/{stream.name}/name=", f"/{stream.topic}+0+"
        assert key.startswith(prefix)
        folder, mark, _ = key.removeprefix(prefix).partition(name)
        assert mark
        assert set("/*?[]{}\\").isdisjoint(folder)
        folders[folder] = key
    # One per value, and one for the records that have none. The one with a byte too many begins with an object, whose
    # fields are found; it is not JSON all the same.
    assert len(folders) == len(HOSTILE) + 1
    assert {"~empty", "null", "..", "__HIVE_DEFAULT_PARTITION__", "%5F_HIVE_DEFAULT_PARTITION__"} <= folders.keys()

    rebuilt(spark, stream, settings)
    columns = ("_offset", "id", "name", "unix_millis(at)", "unix_millis(_event_time)", "cast(_day as string)")
    assert rows(spark, settings, stream.table, *columns) == [
        (number, number, name, at(MONDAY, 9), at(MONDAY, 9), MONDAY.isoformat()) for number, name in enumerate(HOSTILE)
    ]
    refused = rows(spark, settings, stream.quarantine_table, "_offset", "value")
    assert refused == [(len(HOSTILE) + number, value) for number, value in enumerate(bad)]


@pytest.mark.conformance(49)
def test_days_of_an_earlier_avro_schema_are_rebuilt_under_the_newest(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce
) -> None:
    write_schemas(settings)
    before = make_stream(**FORMATS["avro"])
    produce(before.topic, on_tuesday([of_avro(number, f"name {number}", at(MONDAY, 9)) for number in range(3)]))
    archive(spark, before, settings, available_now=True)
    speed = {"topic": before.speed.topic, "dead_letter_topic": before.speed.dead_letter_topic}
    after = make_stream(**CHANGED | {"name": before.name, "topic": before.topic, "speed": speed})
    value = varint(2**40) + b"\x02" + text("UA") + text("new") + varint(at(TUESDAY, 9))
    produce(after.topic, on_tuesday([value, of_avro(4, "late", at(MONDAY, 10)), b"\x00"]))
    archive(spark, after, settings, available_now=True)

    rebuilt(spark, after, settings)
    columns = ("_offset", "id", "carrier", "title", "unix_millis(_event_time)", "cast(_day as string)")
    assert rows(spark, settings, after.table, *columns) == [
        *((number, number, None, f"name {number}", at(MONDAY, 9), MONDAY.isoformat()) for number in range(3)),
        (3, 2**40, "UA", "new", at(TUESDAY, 9), TUESDAY.isoformat()),
        (4, 4, None, "late", at(MONDAY, 10), MONDAY.isoformat()),
    ]
    assert rows(spark, settings, after.quarantine_table, "_offset", "value") == [(5, b"\x00")]


@pytest.mark.conformance(9, 16)
def test_raw_values_are_rebuilt_byte_for_byte(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce
) -> None:
    stream = make_stream(value_format="raw", value_schema=None, archive={"partitioner": {"type": "time"}})
    values = [bytes(range(256)), b"", b"{", b"\xff" * 100_000]
    produce(stream.topic, on_tuesday([*values, None]))
    archive(spark, stream, settings, available_now=True)
    rebuilt(spark, stream, settings)
    assert rows(spark, settings, stream.table, "_offset", "value") == list(enumerate(values))
    assert rows(spark, settings, stream.quarantine_table, "_offset", "reason") == [
        (4, "the value is null (a tombstone)")
    ]


@pytest.mark.parametrize(
    ("definition", "value", "live"),
    [
        (
            FORMATS["avro"],
            of_avro(7, "Zoë", 1_357_016_400_123),
            {"id": 7, "name": "Zoë", "at": "2013-01-01T05:00:00.123000Z"},
        ),
        (
            CHANGED,
            of_avro(7, "Zoë", 1_357_016_400_123),
            {"id": 7, "carrier": None, "title": "Zoë", "at": "2013-01-01T05:00:00.123000Z"},
        ),
        ({"value_format": "raw", "value_schema": None}, b"\x00\xff", {"value": "AP8="}),
    ],
    ids=["avro", "earlier avro", "raw"],
)
def test_a_live_row_is_json_whatever_the_value_was(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, definition: Any, value: bytes, live: Any
) -> None:
    write_schemas(settings)
    stream = make_stream(**definition)
    source = kafka_rows(spark, [value, None])
    transform = load_transform(stream, settings.streams_dir)
    rows = classify(records(source, stream), stream, transform)
    limits = RecordLimits(live=1_000_000, dead_letter=1_000_000)
    good, dead = output(rows, stream, "an id", record_limits=limits).orderBy("_good", ascending=False).collect()
    assert (good.topic, json.loads(good.value)) == (stream.speed.topic, live)
    assert (dead.topic, dead.value) == (stream.speed.dead_letter_topic, None)
