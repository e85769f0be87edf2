"""The tables with the history of all streams: their names, and the columns with what each one means."""

from collections.abc import Iterator
from dataclasses import dataclass

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BooleanType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestamptzType,
)

_KINDS: dict[str, PrimitiveType] = {
    "boolean": BooleanType(),
    "date": DateType(),
    "double": DoubleType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "string": StringType(),
    "timestamp": TimestamptzType(),
}
_VERSION = (
    ("stream", "string", "name of the stream"),
    ("day", "date", "the day, in the stream's time zone"),
    ("version", "int", "version of the day, from 1"),
    ("run", "string", "name of the run that sealed the version"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryTable:
    """A table with rows of each sealed version. ``own`` are its columns after those that all have: name, type, meaning.

    It is partitioned by stream. A name that starts with "_" is no stream's.
    """

    name: str
    own: tuple[tuple[str, str, str], ...]

    @property
    def columns(self) -> tuple[tuple[str, str, str], ...]:
        return (*_VERSION, *self.own)

    def schema(self) -> Schema:
        return Schema(*self._fields())

    def _fields(self) -> Iterator[NestedField]:
        for number, (name, kind, meaning) in enumerate(self.columns, 1):
            yield NestedField(number, name, _KINDS[kind], required=False, doc=meaning)

    def partitions(self) -> PartitionSpec:
        (stream,) = (field.field_id for field in self._fields() if field.name == "stream")
        return PartitionSpec(PartitionField(stream, 1000, IdentityTransform(), "stream"))


RUNS = HistoryTable(
    name="_tidemark_runs",
    own=(
        ("day_ended_at", "timestamp", "when the day ended"),
        ("planned_at", "timestamp", "when the run was planned"),
        ("sealed_at", "timestamp", "when the version was sealed"),
        (
            "work_seconds",
            "double",
            "seconds of the run's steps, for all of its days, without waiting; null: a rollback",
        ),
        ("reason", "string", "why the day was rebuilt, as in the seal; null: a rollback"),
        ("rolled_back_to", "int", "of a rollback, the version whose rows this one repeats"),
        ("quality", "string", "`passed`, `warnings`, or `unchecked` if the stream has no checks"),
        ("approved_by", "string", "the person who approved the version; null if nobody had to"),
        ("rows_read", "bigint", "rows of the day in the archive, each record once"),
        ("rows_published", "bigint", "rows in the published table"),
        ("rows_quarantined", "bigint", "rejected rows in the quarantine table"),
        ("duplicates_removed", "bigint", "duplicates by key, which are in the quarantine table too"),
        ("duplicates_trimmed", "bigint", "further archived copies of the same records, which were not read"),
        ("rows_added", "bigint", "published rows that the version before lacks; null if not compared"),
        ("rows_removed", "bigint", "published rows that only the version before has; null if not compared"),
        ("rows_changed", "bigint", "published rows that both have, with other values; null if not compared"),
        ("refilled_offsets", "bigint", "offsets that the run fetched from Kafka, for all of its days"),
        ("lost_offsets", "bigint", "lost offsets of the logs, of any day"),
        ("lost_offsets_of_day", "bigint", "those of them that may be of this day"),
        ("unexplained_offsets", "bigint", "offsets of the logs without a row and without a known cause, of any day"),
        ("snapshot_id", "bigint", "snapshot of the published table"),
        ("quarantine_snapshot_id", "bigint", "snapshot of the quarantine table"),
        ("seal_sha256", "string", "SHA-256 of the seal"),
    ),
)
CHECKS = HistoryTable(
    name="_tidemark_checks",
    own=(
        ("expectation", "string", "name of the expectation"),
        ("column_name", "string", "the column that it is about; null: none, or several"),
        ("arguments", "string", "its arguments, as JSON"),
        ("about", "string", "what one of Tidemark's own checks judges, in words"),
        ("severity", "string", "`critical` or `warning`"),
        ("built_in", "boolean", "whether every stream has the check"),
        ("success", "boolean", "its result; null: unknown"),
        (
            "passes",
            "boolean",
            "whether there is nothing to act on: true also with too few earlier days to compare with",
        ),
        ("observed", "string", "what it saw, in words"),
        ("observed_number", "double", "what it saw, if that is a number"),
        ("unexpected_rows", "bigint", "rows with an unexpected value, if it counts them"),
        ("checked_rows", "bigint", "rows that it judged, if it counts them"),
        ("error", "string", "why it could not be made"),
    ),
)
RECONCILIATION = HistoryTable(
    name="_tidemark_reconciliation",
    own=(
        ("topic", "string", "name of the topic"),
        ("topic_id", "string", "Kafka's id of the topic"),
        ("kafka_partition", "int", "the partition"),
        ("start_offset", "bigint", "first offset that the stream is responsible for"),
        ("end_offset", "bigint", "offset after the last one that the version accounts for"),
        ("used_offsets", "bigint", "offsets of the ranges that the rows come from, of any day"),
        ("refilled_offsets", "bigint", "offsets that the run fetched from Kafka"),
        ("lost_offsets", "bigint", "offsets that Kafka deleted before they were archived"),
        ("transactional_offsets", "bigint", "used offsets without a row: markers and aborted records"),
        ("compacted_offsets", "bigint", "used offsets without a row: removed by topic compaction"),
        ("unexplained_offsets", "bigint", "used offsets without a row and without a known cause"),
    ),
)
REASONS = HistoryTable(
    name="_tidemark_quarantine_reasons",
    own=(
        ("reason", "string", "why records were rejected; null: all reasons but the most frequent ten"),
        ("row_count", "bigint", "rows of the quarantine table with the reason"),
    ),
)
HISTORY_TABLES = (RUNS, CHECKS, RECONCILIATION, REASONS)
