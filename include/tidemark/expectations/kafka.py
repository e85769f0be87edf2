"""Expectations of the place that a row's record has in Kafka: topic id, partition and offset."""

from collections.abc import Sequence
from typing import Any, ClassVar

from great_expectations.compatibility import pydantic
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.expectations.query import SparkQueryExpectation, name, text

_HEADER = "tidemark.source"  # topic, topic id, partition, offset


class KafkaExpectation(SparkQueryExpectation):
    """The columns that have a record's place. The defaults are those of Tidemark's tables."""

    topic_id_column: str = "_topic_id"
    partition_column: str = "_kafka_partition"
    offset_column: str = "_offset"

    def place(self) -> list[str]:
        """The three columns as a query has them."""
        return [name(column) for column in (self.topic_id_column, self.partition_column, self.offset_column)]


class ExpectKafkaRecordsToBeUnique(KafkaExpectation):
    """No two rows are of the same record."""

    sentence: ClassVar[str] = "No two rows are of the same record: topic id, partition and offset."
    success_keys: ClassVar[tuple[str, ...]] = ("topic_id_column", "partition_column", "offset_column")

    def unexpected(self) -> str:
        place = ", ".join(self.place())
        return f"SELECT {place}, count(*) AS copies FROM {{batch}} GROUP BY {place} HAVING count(*) > 1"  # noqa: S608


class ExpectOffsetsToBeComplete(KafkaExpectation):
    """Every offset of each range has a row.

    A range has ``topic_id``, ``partition``, ``start`` and ``end``, the offset after its last one, and where not 0
    ``missing``: its offsets without a row, as of transaction markers. Without ``ranges``, each log must have every
    offset from its first row to its last one.
    """

    ranges: Sequence[dict[str, Any]] | None = None

    sentence: ClassVar[str] = "Every offset has a row."
    success_keys: ClassVar[tuple[str, ...]] = ("ranges", "topic_id_column", "partition_column", "offset_column")

    @pydantic.validator("ranges")
    def _ranges_are_ranges(cls, value: Sequence[dict[str, Any]] | None) -> Sequence[dict[str, Any]] | None:  # noqa: N805 - as pydantic has it
        needed = {"topic_id", "partition", "start", "end"}
        for item in value or ():
            if needed - item.keys() or item.keys() - needed - {"missing"}:
                raise ValueError(f"expected {', '.join(sorted(needed))} and missing, found {', '.join(item)}")
        if value is not None and not value:
            raise ValueError("expected at least one range, found none")
        return value

    def unexpected(self) -> str:
        topic_id, partition, offset = self.place()
        if self.ranges is None:
            return (
                f"SELECT {topic_id} AS topic_id, {partition} AS partition, min({offset}) AS start,"  # noqa: S608
                f" max({offset}) + 1 AS end, max({offset}) + 1 - min({offset}) AS expected,"
                f" count(DISTINCT {offset}) AS found FROM {{batch}} GROUP BY {topic_id}, {partition}"
                " HAVING found <> expected"
            )
        values = ", ".join(
            f"({text(item['topic_id'])}, {int(item['partition'])}, {int(item['start'])}L, {int(item['end'])}L,"
            f" {int(item['end']) - int(item['start']) - int(item.get('missing', 0))}L)"
            for item in self.ranges
        )
        return (
            f"SELECT r.topic_id, r.partition, r.start, r.end, r.expected, count(DISTINCT b.{offset}) AS found"  # noqa: S608
            f" FROM VALUES {values} AS r(topic_id, partition, start, end, expected) LEFT JOIN {{batch}} b"
            f" ON b.{topic_id} = r.topic_id AND b.{partition} = r.partition AND b.{offset} >= r.start"
            f" AND b.{offset} < r.end GROUP BY ALL HAVING found <> r.expected"
        )


class ExpectLiveTopicToAgreeWithTable(KafkaExpectation):
    """The live topic has each row of the table once, and no other, within the bounds.

    ``live``: a view of the Spark session with a row for each record of the live topic, as of ``live_records``. Rows are
    missing, records are duplicated or unexpected: the bounds are the largest allowed counts.
    """

    live: str
    missing_max: int = 0
    duplicated_max: int = 0
    unexpected_max: int = 0

    sentence: ClassVar[str] = "The live topic has each row of the table once, and no other, within the bounds."
    success_keys: ClassVar[tuple[str, ...]] = (
        "live",
        "missing_max",
        "duplicated_max",
        "unexpected_max",
        "topic_id_column",
        "partition_column",
        "offset_column",
    )

    def unexpected(self) -> str:
        place, using = self.place(), "topic_id, partition, offset"
        own = ", ".join(f"{column} AS {of}" for column, of in zip(place, using.split(", "), strict=True))
        found = ", ".join(
            f"'{finding}', {finding}, {int(getattr(self, f'{finding}_max'))}L"
            for finding in ("missing", "duplicated", "unexpected")
        )
        return (
            f"SELECT * FROM (SELECT stack(3, {found}) AS (finding, found, allowed) FROM ("  # noqa: S608
            "SELECT count_if(l.copies IS NULL) AS missing, coalesce(sum(if(t.in_table, l.copies - 1, 0)), 0) AS"
            " duplicated, coalesce(sum(if(t.in_table IS NULL, l.copies, 0)), 0) AS unexpected"
            f" FROM (SELECT DISTINCT {own}, true AS in_table FROM {{batch}}) t FULL OUTER JOIN"
            f" (SELECT {using}, count(*) AS copies FROM {name(self.live)} GROUP BY {using}) l USING ({using})"
            ")) WHERE found > allowed"
        )


def live_records(records: DataFrame) -> DataFrame:
    """``topic_id``, ``partition`` and ``offset`` of the source record of each record of a live topic.

    ``records`` come from Spark's Kafka source with ``includeHeaders``. A record without Tidemark's header has nulls.
    """
    header = F.filter("headers", lambda item: item.key == _HEADER)
    parts = F.split(F.get(header, F.lit(0)).value.cast("string"), ":")
    return records.select(
        F.get(parts, F.lit(1)).alias("topic_id"),
        F.get(parts, F.lit(2)).cast("int").alias("partition"),
        F.get(parts, F.lit(3)).cast("long").alias("offset"),
    )
