"""Event time and its calendar day, against Python's datetime and zoneinfo."""

import json
from datetime import UTC, date, datetime, timedelta
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.spark.rows import NOON, kafka_rows, microseconds, stream
from tidemark.spark.decode import decode
from tidemark.spark.fields import json_field
from tidemark.spark.records import ARCHIVE_SCHEMA, day, event_time, out_of_bounds, records, unreadable_time


def extracted(spark: SparkSession, values: list[bytes | None], form: str, field: str = "$.at") -> list[int]:
    """The event time of each value, in µs."""
    extractor = {"extractor": "record_field", "field": field, "format": form, "max_distance_days": 36_500}
    definition = stream(event_time=extractor)
    rows = kafka_rows(spark, values).select("offset", F.unix_micros(event_time(definition)).alias("us"))
    return [row.us for row in rows.orderBy("offset").collect()]


def at(text: str) -> bytes:
    return b'{"at":' + text.encode() + b"}"


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type,misc]  # year, month, …


FORMS: dict[str, dict[bytes | None, datetime]] = {
    "iso8601": {
        at('"2013-01-01T05:15:00Z"'): utc(2013, 1, 1, 5, 15),
        at('"2013-01-01T05:15:00-05:00"'): utc(2013, 1, 1, 10, 15),
        at('"2013-01-01T05:15:00+0530"'): utc(2012, 12, 31, 23, 45),
        at('"2013-01-01T05:15:00+05"'): utc(2013, 1, 1, 0, 15),
        at('"2013-01-01T05:15:00"'): utc(2013, 1, 1, 5, 15),
        at('"2013-01-01 05:15"'): utc(2013, 1, 1, 5, 15),
        at('"2013-01-01"'): utc(2013, 1, 1),
        at('"2013-01-01T05:15:00.5Z"'): utc(2013, 1, 1, 5, 15, 0, 500_000),
        at('"2013-01-01T05:15:00.123456789Z"'): utc(2013, 1, 1, 5, 15, 0, 123_456),
        at('"12:30"'): NOON,
        at('"T12:30:00"'): NOON,
        at('"2013"'): NOON,
        at('"2013-13-01T00:00:00Z"'): NOON,
        at('"2013-02-29T00:00:00Z"'): NOON,
        at('"2013-01-01T25:00:00Z"'): NOON,
        at('"yesterday"'): NOON,
        at('"now"'): NOON,
        at('""'): NOON,
        at("1356998400"): NOON,
        at("{}"): NOON,
    },
    "epoch_ms": {
        at("1356998400123"): utc(2013, 1, 1, 0, 0, 0, 123_000),
        at('"1356998400123"'): utc(2013, 1, 1, 0, 0, 0, 123_000),
        at("0"): utc(1970, 1, 1),
        at("-1"): utc(1969, 12, 31, 23, 59, 59, 999_000),
        at("1356998400123.5"): utc(2013, 1, 1, 0, 0, 0, 123_500),
        at("9223372036854775807"): NOON,
        at("-9223372036854775808"): NOON,
        at("253402300800000"): NOON,  # the first moment of year 10000
        at('"2013-01-01T00:00:00Z"'): NOON,
        at("true"): NOON,
        at("[1356998400123]"): NOON,
        at("1.356998400123e12"): utc(2013, 1, 1, 0, 0, 0, 123_000),
        # Spark takes long over these, or stops the query.
        at('"1e9000000"'): NOON,
        at('"1e-9000000"'): NOON,
        at('"1e-999999999"'): NOON,
        at("1e-999999999"): utc(1970, 1, 1),
        at('"' + "1" * 1_000_000 + '"'): NOON,
    },
    "epoch_s": {
        at("1356998400"): utc(2013, 1, 1),
        at("1356998400.25"): utc(2013, 1, 1, 0, 0, 0, 250_000),
        at('"1356998400"'): utc(2013, 1, 1),
        at("1356998400123"): NOON,  # milliseconds by mistake: year 44970
        at("9223372036854775807"): NOON,
        at('"soon"'): NOON,
    },
}
NO_TIME: tuple[bytes | None, ...] = (
    None,
    b"",
    b"{}",
    b'{"at":null}',
    b'{"other":1}',
    b"[1]",
    b"{",
    b'{"at":',
    b'{"at":"\xff"}',
    b"\xff\xfe",
    b'{"at":' + b"[" * 2000,
)


@pytest.mark.parametrize("form", FORMS)
def test_a_field_without_a_time_leaves_the_records_timestamp(spark: SparkSession, form: str) -> None:
    wanted = FORMS[form] | dict.fromkeys(NO_TIME, NOON)
    found = dict(zip(wanted, extracted(spark, list(wanted), form), strict=True))
    assert found == {value: microseconds(moment) for value, moment in wanted.items()}


@pytest.mark.conformance(33, 34)
@pytest.mark.parametrize(
    ("timestamp", "distance", "kept"),
    [
        (NOON, timedelta(days=31), True),
        (NOON, -timedelta(days=31), True),
        (NOON, timedelta(days=31, microseconds=1), False),
        (NOON, -timedelta(days=31, microseconds=1), False),
        (NOON, timedelta(days=365), False),
        (NOON, -(NOON - utc(1970, 1, 1)), False),
        (utc(1969, 12, 31, 23, 59, 59, 999_000), timedelta(days=20_000), True),  # Kafka's value for no timestamp
        (None, timedelta(0), True),
    ],
)
def test_a_field_too_far_from_the_records_timestamp_counts_as_none(
    spark: SparkSession, timestamp: datetime | None, distance: timedelta, kept: bool
) -> None:
    definition = stream(event_time={"extractor": "record_field", "field": "$.at"})
    moment = (timestamp or NOON) + distance
    given = kafka_rows(spark, [at(f'"{moment.isoformat()}"')], timestamp)
    outside = out_of_bounds(definition)
    assert outside is not None
    (row,) = records(given, definition).select(F.unix_micros("event_time").alias("us"), outside.alias("far")).collect()
    assert (row.us, row.far) == (microseconds(moment if kept or timestamp is None else timestamp), not kept)


def test_only_a_time_field_can_be_out_of_bounds() -> None:
    assert out_of_bounds(stream()) is None
    assert unreadable_time(stream()) is None


# Per format the values that have a time, one that is too far off, and values without a time that can be read.
UNREADABLE: dict[str, tuple[list[bytes], bytes, list[bytes]]] = {
    "iso8601": (
        [at('"2024-05-17"'), at('"2024-05-17T12:00:00Z"')],
        at('"1724-05-17"'),
        [
            at("1715947200000"),
            at('"12:30"'),
            at('"2024-05-32"'),
            at('""'),
            at("null"),
            b'{"At":"2024-05-17"}',
            b"",
            b"{",
        ],
    ),
    "epoch_ms": (
        [at("1715947200000"), at('"1715947200000"')],
        at("253402300800000"),
        [at("9223372036854775807"), at('"2024-05-17"'), at('"1,715,947,200"'), at("true"), at("{}"), b"[]", b"\xff"],
    ),
    "epoch_s": (
        [at("1715947200"), at("1715947200.5")],
        at("99999999999"),
        [at("1715947200000"), at('"soon"'), at("[1715947200]"), b"{}"],
    ),
}


@pytest.mark.conformance(76)
@pytest.mark.parametrize("form", UNREADABLE)
def test_a_time_that_can_not_be_read_is_marked_and_rejected_where_the_stream_asks_for_it(
    spark: SparkSession, form: str
) -> None:
    times, far, unreadable = UNREADABLE[form]
    wanted = {"extractor": "record_field", "field": "$.at", "format": form}
    values: list[bytes | None] = [*times, far, *unreadable, None]
    marks = [*[False] * len(times), True, *[None] * len(unreadable), False]
    for on_unreadable in ("timestamp", "reject"):
        definition = stream(event_time=wanted | {"on_unreadable": on_unreadable})
        mark, reason = out_of_bounds(definition), unreadable_time(definition)
        assert mark is not None
        assert (reason is None) == (on_unreadable == "timestamp")
        columns = mark.alias("mark"), (F.lit(None) if reason is None else reason).alias("reason")
        found = records(kafka_rows(spark, values), definition).select("offset", *columns).orderBy("offset").collect()
        assert [row.mark for row in found] == marks
        text = f"event_time: $.at has no time such as {EXAMPLES[form]}" if on_unreadable == "reject" else None
        assert [row.reason for row in found] == [text if item is None else None for item in marks]


EXAMPLES = {"iso8601": "2026-01-31T12:30:00Z", "epoch_ms": "1769862600000", "epoch_s": "1769862600"}


def test_the_examples_of_a_rejected_time_have_a_time(spark: SparkSession) -> None:
    for form, example in EXAMPLES.items():
        assert extracted(spark, [at(f'"{example}"')], form) == [microseconds(utc(2026, 1, 31, 12, 30))]


def test_a_field_inside_an_object_and_a_list_is_found_by_its_path(spark: SparkSession) -> None:
    value = b'{"trip":{"stops":[{"t":1},{"t":60}]}}'
    assert extracted(spark, [value], "epoch_s", "$.trip.stops[1].t") == [60_000_000]


def test_a_field_of_any_name_is_found_and_a_broken_text_has_none(spark: SparkSession) -> None:
    value = b'{"_corrupt_record":{"a b":[{"$":7}]}}'
    path = "$._corrupt_record.a b[0].$"
    assert extracted(spark, [value, value[:-1]], "epoch_s", path) == [7_000_000, microseconds(NOON)]


@pytest.mark.conformance(74)
def test_the_last_time_of_a_repeated_name_is_the_event_time(spark: SparkSession) -> None:
    assert extracted(spark, [b'{"at":1,"at":60}', b'{"at":1,"at":null}'], "epoch_s") == [60_000_000, microseconds(NOON)]


def drawn(random: Random, depth: int = 3) -> str:
    """A JSON object in which names are repeated."""
    values = ["null", "1", '"x"', "[]", '"2"', "true", *(["{}"] if depth == 0 else [])]
    members = [
        (random.choice("abc"), drawn(random, depth - 1) if depth and random.random() < 0.6 else random.choice(values))
        for _ in range(random.randint(0, 4))
    ]
    return "{" + ",".join(f'"{name}":{value}' for name, value in members) + "}"


@pytest.mark.conformance(74)
def test_a_field_found_by_its_path_is_that_of_the_decoded_value(spark: SparkSession) -> None:
    random = Random(40)  # noqa: S311 - repeatable values
    values: list[bytes | None] = [f'{{"a":{drawn(random)},"a":{drawn(random)}}}'.encode() for _ in range(500)]
    definition = stream("a STRUCT<b: STRING, c: STRING>")
    rows = records(kafka_rows(spark, values), definition)
    texts = (json_field(F.col("source.value").cast("string"), f"$.a.{name}").alias(name) for name in "bc")
    found = decode(rows, definition).select("source._reason", "event", *texts).orderBy("source.offset").collect()
    assert all(row["_reason"] is None for row in found)
    seen = 0
    for row, value in zip(found, values, strict=True):
        right = json.loads(value or b"")["a"]
        for name in "bc":
            assert row[name] == row.event.a[name]
            if not isinstance(right.get(name), dict):
                last = right.get(name)
                text = last if isinstance(last, str | None) else json.dumps(last)
                assert (row[name], value) == (text, value)
                seen += text is not None
    assert seen > 100


@pytest.mark.conformance(49)
def test_a_renamed_field_gives_the_event_time_under_all_its_names(spark: SparkSession) -> None:
    values = [
        b'{"trip":{"t":1}}',
        b'{"tour.1":{"t":2}}',
        b'{"way":{"t":3}}',
        b'{"tour.1":{"t":4},"trip":{"t":5}}',
        b"{}",
    ]
    event_time = {"extractor": "record_field", "field": "$.trip.t", "format": "epoch_s", "max_distance_days": 36_500}
    wanted = stream("trip STRING", event_time=event_time, renamed={"trip": ["tour.1", "way"]})
    rows = records(kafka_rows(spark, values), wanted).orderBy("offset")
    found = [row.us for row in rows.select(F.unix_micros("event_time").alias("us")).collect()]
    assert found == [1_000_000, 2_000_000, 3_000_000, 5_000_000, microseconds(NOON)]


@pytest.mark.parametrize(
    ("year", "wanted"), [(10001, utc(9999, 12, 30)), (45000, utc(9999, 12, 30)), (2013, utc(2013, 1, 1))]
)
def test_a_record_time_outside_the_calendar_counts_as_the_nearest_inside(
    spark: SparkSession, year: int, wanted: datetime
) -> None:
    with_timestamp = kafka_rows(spark, [b"x"]).withColumn("timestamp", F.expr(f"make_timestamp({year}, 1, 1, 0, 0, 0)"))
    rows = records(with_timestamp, stream())
    ((found, days),) = rows.select(F.unix_micros("event_time"), day(stream()).cast("string")).collect()
    assert (found, days) == (microseconds(wanted), wanted.date().isoformat())


def test_rows_have_the_archives_columns_and_no_null_list(spark: SparkSession) -> None:
    rows = records(kafka_rows(spark, [b"x"]), stream())
    assert [(item.name, item.dataType) for item in rows.schema] == [
        (item.name, item.dataType) for item in ARCHIVE_SCHEMA
    ]
    row = rows.select("*", F.unix_micros("event_time").alias("us")).collect()[0]
    assert (row.topic, row.partition, row.offset, row.timestamp_type, row.key, row.value, row.headers, row.us) == (
        "source",
        3,
        0,
        0,
        b"k0",
        b"x",
        [],
        microseconds(NOON),
    )


# Clocks go forward and back, at midnight and at other hours, by half an hour, and once by a whole day.
ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kolkata",
    "Asia/Beirut",
    "America/Sao_Paulo",
    "Australia/Lord_Howe",
    "Pacific/Apia",
)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.conformance(8)
def test_the_day_is_the_zones_calendar_day_around_every_clock_change(spark: SparkSession, zone: str) -> None:
    info = ZoneInfo(zone)
    changes = [
        moment
        for moment in (utc(2010, 1, 1) + timedelta(hours=number) for number in range(24 * 366 * 4))
        if moment.astimezone(info).utcoffset() != (moment + timedelta(hours=1)).astimezone(info).utcoffset()
    ]
    assert (zone in {"UTC", "Asia/Kolkata"}) == (not changes)
    spans = [(change - timedelta(hours=30), 60 * 4) for change in changes] + [(utc(2013, 1, 1), 48 * 4)]
    moments = sorted({start + timedelta(minutes=15 * step) for start, steps in spans for step in range(steps)})
    frame = spark.createDataFrame([(microseconds(moment),) for moment in moments], "us BIGINT")
    rows = frame.select("us", F.timestamp_micros("us").alias("event_time")).select(
        "us", day(stream(time_zone=zone)).alias("day")
    )
    found = {row.us: row.day for row in rows.collect()}
    assert found == {microseconds(moment): moment.astimezone(info).date() for moment in moments}


@pytest.mark.parametrize(
    ("on", "hours"), [(date(2013, 3, 10), 23), (date(2013, 3, 11), 24), (date(2013, 11, 3), 25)], ids=str
)
def test_a_new_york_day_has_as_many_hours_as_its_clocks_show(spark: SparkSession, on: date, hours: int) -> None:
    start = utc(on.year, on.month, on.day)
    frame = spark.range(72 * 60).select(
        F.timestamp_seconds(F.lit(int((start - timedelta(days=1)).timestamp())) + F.col("id") * 60).alias("event_time")
    )
    new_york: Any = stream(time_zone="America/New_York")
    assert frame.where(day(new_york) == on).count() == hours * 60


def test_a_utc_day_ends_with_its_last_microsecond_in_every_year_that_a_calendar_has(spark: SparkSession) -> None:
    starts = [utc(year, month, 1) for year in (2, 1582, 1969, 1970, 2013, 2262, 9999) for month in (1, 3)]
    moments = [start + timedelta(microseconds=step) for start in starts for step in (-1, 0, 1)]
    frame = spark.createDataFrame([(microseconds(moment),) for moment in moments], "us BIGINT")
    rows = frame.select("us", F.timestamp_micros("us").alias("event_time")).select(
        "us", day(stream(time_zone="UTC")).alias("day")
    )
    assert {row.us: row.day for row in rows.collect()} == {microseconds(moment): moment.date() for moment in moments}
