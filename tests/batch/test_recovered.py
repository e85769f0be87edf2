"""Rejected records that a later version publishes: counted by the reason that the version before had for them."""

from datetime import UTC, date, datetime

from pyspark.sql import DataFrame, SparkSession

from tidemark.reconcile.day_profile import REASONS_MAX
from tidemark.reconcile.rebuild.recovered import recovered
from tidemark.tables.columns import QUARANTINE_SCHEMA

MONDAY, TUESDAY = date(2013, 1, 14), date(2013, 1, 15)
AT = datetime(2013, 1, 14, 17, tzinfo=UTC)


def quarantine(spark: SparkSession, *rows: tuple[date, int, int, str, int | None]) -> DataFrame:
    """Rows of a day, partition, offset and reason; the last value is the offset of the record kept instead."""
    values = [
        (day, "id", partition, offset, AT, AT, reason, None, None, None, None, kept)
        for day, partition, offset, reason, kept in rows
    ]
    return spark.createDataFrame(values, QUARANTINE_SCHEMA)


def published(spark: SparkSession, *places: tuple[date, int, int]) -> DataFrame:
    rows = [(day, "id", partition, offset) for day, partition, offset in places]
    return spark.createDataFrame(rows, "_day DATE, _topic_id STRING, _kafka_partition INT, _offset BIGINT")


def test_only_rejected_records_of_the_days_that_are_published_now_count(spark: SparkSession) -> None:
    earlier = quarantine(
        spark,
        (MONDAY, 0, 1, "no id", None),
        (MONDAY, 0, 2, "no id", None),
        (MONDAY, 1, 1, "no id", None),  # not published now: another partition has the offset
        (MONDAY, 0, 3, "no name", None),
        (MONDAY, 0, 4, "duplicate by key (id)", 9),  # was not rejected
        (TUESDAY, 0, 7, "no id", None),
        (date(2013, 1, 16), 0, 8, "no id", None),  # not a day of the run
    )
    now = published(spark, *((MONDAY, 0, offset) for offset in (1, 2, 3, 4, 5)), (TUESDAY, 1, 7))
    found = recovered(earlier, now, [MONDAY, TUESDAY])
    assert list(found) == [MONDAY]
    figures = [(row["reason"], row["count"], row["rows"], row["reasons"]) for row in found[MONDAY]]
    assert figures == [("no id", 2, 3, 2), ("no name", 1, 3, 2)]


def test_of_many_reasons_the_most_frequent_are_named_and_all_are_counted(spark: SparkSession) -> None:
    long = "x" * 400
    earlier = quarantine(
        spark,
        *((MONDAY, 0, number, f"value {number}", None) for number in range(20)),
        *((MONDAY, 0, 100 + number, long, None) for number in range(3)),
    )
    now = published(spark, *((MONDAY, 0, offset) for offset in range(200)))
    rows = recovered(earlier, now, [MONDAY])[MONDAY]
    assert len(rows) == REASONS_MAX
    assert (rows[0]["reason"], rows[0]["count"]) == ("x" * 300, 3)
    assert {(row["rows"], row["reasons"]) for row in rows} == {(23, 21)}
