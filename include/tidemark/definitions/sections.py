"""The groups of keys in a stream definition."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from croniter import croniter
from pydantic import BaseModel, ConfigDict, Field, model_validator

from tidemark.core.batch_size import ARCHIVE_OFFSETS, SPEED_OFFSETS
from tidemark.definitions.values import Cron, JsonPath, TimeOfDay, Topic

_HOURS_MAX = 100 * 366 * 24  # a moment so far ahead is still one that Python knows
_SHORTHANDS = {
    "hourly": "'year='yyyy/'month='MM/'day='dd/'hour='HH",
    "daily": "'year='yyyy/'month='MM/'day='dd",
}


class Keys(BaseModel):
    """A group of keys, without any other key."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class RecordTime(Keys):
    """The event time is the timestamp of the Kafka record."""

    extractor: Literal["record"] = Field(
        default="record", description="Takes the event time from the Kafka record.", examples=["record"]
    )


class FieldTime(Keys):
    """The event time is a field of the value. A record without a valid time there keeps its Kafka timestamp."""

    extractor: Literal["record_field"] = Field(
        description="Takes the event time from a field of the value.", examples=["record_field"]
    )
    field: JsonPath = Field(
        description="JSON path of the field. It must exist in `value_schema` or the Avro schema, except inside of a"
        " STRING that holds JSON. Its type must be able to hold the format.",
        examples=["$.departed_at"],
    )
    format: Literal["iso8601", "epoch_ms", "epoch_s"] = Field(
        default="iso8601", description="How the field writes a time.", examples=["epoch_ms"]
    )
    max_distance_days: int = Field(
        default=31,
        ge=1,
        le=36_500,
        description="How many days the field may lie before or after the timestamp of its Kafka record. If it lies"
        " further away, the event time is that timestamp, so that wrong clocks open few days. Raise it before a replay"
        " of old events. A change applies only to records that are archived after it.",
        examples=[400],
    )
    on_unreadable: Literal["timestamp", "reject"] = Field(
        default="timestamp",
        description="What becomes of a record whose field has no time of this format: `timestamp` gives it the event"
        " time of its Kafka record; `reject` also makes it a dead letter, and puts it in the quarantine table. The"
        " archive keeps it in either case, on the day of its timestamp.",
        examples=["reject"],
    )
    unreadable_alarm_share: float = Field(
        default=0.01,
        ge=0,
        le=1,
        description="The alarm begins when more than this share of the last hour's records have no time of this format."
        " Fewer than 100 records count as 100. The report of a day with a larger share says that it may be used with"
        " limits.",
        examples=[0.1],
    )


class DefaultPartitioner(Keys):
    """One folder per Kafka partition."""

    type: Literal["default"] = Field(
        default="default", description="Writes one folder per Kafka partition.", examples=["default"]
    )


class FieldPartitioner(Keys):
    """One folder per value of the given fields, nested in their order: `carrier=UA/dest=JFK`."""

    type: Literal["field"] = Field(description="Writes one folder per value of the fields.", examples=["field"])
    fields: tuple[JsonPath, ...] = Field(
        min_length=1,
        description="JSON paths of the fields. Each is one level of folders.",
        examples=[["$.carrier", "$.dest"]],
    )


class TimePartitioner(Keys):
    """One folder per span of time, in the stream's time zone."""

    type: Literal["time"] = Field(description="Writes one folder per span of time.", examples=["time"])
    path_format: str = Field(
        default="hourly",
        description="`hourly`, `daily`, or a Spark datetime pattern with literal text in quotes.",
        examples=["'day='yyyy-MM-dd"],
    )
    clock: Literal["event_time", "wall_clock"] = Field(
        default="event_time",
        description="Which time decides the folder. `wall_clock` is the time when Spark fixed the micro-batch, so a"
        " retry repeats it.",
        examples=["wall_clock"],
    )

    @property
    def pattern(self) -> str:
        """The Spark datetime pattern, shorthands written out."""
        return _SHORTHANDS.get(self.path_format, self.path_format)


class Storage(Keys):
    """How S3 stores data objects. Without a key, the default of the bucket applies. Encryption is a setting."""

    storage_class: str | None = Field(
        default=None,
        pattern=r"^[A-Z][A-Z0-9_]*$",
        description="S3 storage class. Rebuilds cannot read classes that need a restore first, such as `GLACIER`.",
        examples=["STANDARD_IA"],
    )
    tags: dict[str, str] = Field(default={}, max_length=10, description="Object tags.", examples=[{"team": "ops"}])


class Archive(Keys):
    """When the archive commits, and which records share an object. A micro-batch is the unit of commit."""

    partitioner: DefaultPartitioner | FieldPartitioner | TimePartitioner = Field(
        default=DefaultPartitioner(), discriminator="type"
    )
    flush_size: int = Field(default=500_000, ge=1, description="Most records in one object.", examples=[100_000])
    max_bytes: int = Field(
        default=256 * 1024 * 1024, ge=1, description="Most bytes of keys and values in one object.", examples=[67108864]
    )
    rotate_interval_seconds: float | None = Field(
        default=None,
        gt=0,
        description="Longest span of event time in one object, counted from its first record.",
        examples=[3600],
    )
    rotate_schedule: Cron | None = Field(
        default=None,
        description="Cron expression of five fields, in the stream's time zone. At these moments the archive commits"
        " everything in Kafka, even below `min_offsets_per_trigger`.",
        examples=["0 * * * *"],
    )
    max_open_files: int = Field(
        default=20,
        ge=1,
        description="Most objects that one task writes at once. Rows of further folders wait on local disk.",
        examples=[50],
    )
    max_folders: int = Field(
        default=1_000,
        ge=1,
        description="Most folders that one micro-batch fills for one Kafka partition: the first ones in offset order."
        " Rows of further folders share one, whose name contains `~overflow`.",
        examples=[200],
    )
    part_bytes: int = Field(
        default=25_000_000,
        ge=5 * 1024 * 1024,
        description="Size of one part of a multipart upload. Each open object needs as much memory.",
        examples=[8_000_000],
    )
    trigger_seconds: float = Field(default=10, ge=0, description="Interval between micro-batches.", examples=[60])
    min_offsets_per_trigger: int | None = Field(
        default=None, ge=1, description="A micro-batch waits until Kafka has this many new offsets.", examples=[50_000]
    )
    max_trigger_delay_seconds: float = Field(
        default=900,
        gt=0,
        description="Longest wait for `min_offsets_per_trigger`. Allowed with that key only.",
        examples=[300],
    )
    max_offsets_per_trigger: int | None = Field(
        default=None,
        ge=1,
        description=f"Most offsets in one micro-batch of all partitions. Without the key: {ARCHIVE_OFFSETS:,} for each"
        " partition that the topic has at the start, but at least `min_offsets_per_trigger`.",
        examples=[1_000_000],
    )
    on_loss: Literal["stop", "continue"] = Field(
        default="stop",
        description="What the archive does if retention deleted records before it read them: end with an error, or"
        " log the lost offsets and read on after them.",
        examples=["continue"],
    )
    on_rewrite: Literal["stop", "continue"] = Field(
        default="stop",
        description="What the archive and reconcile runs do if Kafka holds other records at archived offsets, because a"
        " log was truncated: end with an error, or log the offsets and continue after them.",
        examples=["continue"],
    )
    retention_alarm_hours: float = Field(
        default=24,
        ge=0,
        le=_HOURS_MAX,
        description="`tidemark status` raises an alarm if Kafka may delete the first unarchived record this soon.",
        examples=[48],
    )
    bounds_alarm_hours: float = Field(
        default=24,
        ge=0,
        le=_HOURS_MAX,
        description="How long `tidemark status` raises an alarm after a batch had rows beyond `max_folders` or"
        " `event_time.max_distance_days`, or `event_time.unreadable_alarm_share` was exceeded. With `0` it never does.",
        examples=[1],
    )
    storage: Storage = Storage()

    @model_validator(mode="after")
    def _bounds_fit(self) -> "Archive":
        low, high = self.min_offsets_per_trigger, self.max_offsets_per_trigger
        if low is not None and high is not None and low > high:
            raise ValueError(f"min_offsets_per_trigger {low} is above max_offsets_per_trigger {high}")
        if low is None and "max_trigger_delay_seconds" in self.model_fields_set:
            raise ValueError(
                f"max_trigger_delay_seconds {self.max_trigger_delay_seconds:g} needs min_offsets_per_trigger"
            )
        return self


class Speed(Keys):
    """The live topic and the dead-letter topic. The speed layer creates both if they are missing."""

    topic: Topic = Field(description="The live topic.", examples=["flights.live"])
    dead_letter_topic: Topic = Field(
        description="Topic for records that cannot be decoded, or that the transformation rejects.",
        examples=["flights.dead-letter"],
    )
    delivery: Literal["at_least_once", "exactly_once"] = Field(
        default="at_least_once", description="What readers of both topics can rely on.", examples=["exactly_once"]
    )
    key: str | None = Field(
        default=None,
        description="Output column that becomes the key of live records. Without it they keep the source's key.",
        examples=["carrier"],
    )
    partitioning: Literal["key", "source"] = Field(
        default="key",
        description="How a record gets its partition: by the hash of its key, or the same number as in the source.",
        examples=["source"],
    )
    trigger_seconds: float = Field(default=1, ge=0, description="Interval between micro-batches.", examples=[0.5])
    max_offsets_per_trigger: int | None = Field(
        default=None,
        ge=1,
        description=f"Most offsets in one micro-batch of all partitions. Without the key: {SPEED_OFFSETS:,} for each"
        " partition that the topic has at the start.",
        examples=[200_000],
    )
    transaction_records: int = Field(
        default=100_000, ge=1, description="Most records in one transaction of `exactly_once`.", examples=[10_000]
    )


class Check(Keys):
    """One Great Expectations expectation, which each day is checked with before its publication."""

    expectation: str = Field(
        description="Name of the expectation, in snake case.",
        examples=["expect_column_values_to_not_be_null"],
    )
    kwargs: dict[str, Any] = Field(
        default={},
        description="Arguments of the expectation. With `row_condition`, a condition in Spark SQL, it judges only the"
        " rows that meet it.",
        examples=[{"column": "carrier", "mostly": 0.99}],
    )
    severity: Literal["critical", "warning", "none"] = Field(
        default="critical",
        description="A failed `critical` check stops the publication. A failed `warning` is shown in the report. `none`"
        " switches off the check that `profile` has of this expectation and column.",
        examples=["warning"],
    )


class Deduplicate(Keys):
    """Removes duplicates by key within a day. Without a key, every good row is published."""

    key: tuple[str, ...] = Field(
        default=(),
        description="Columns of the transformation. Of a day's good rows with equal values in all of them, one is"
        " published.",
        examples=[["order_id", "line"]],
    )
    keep: Literal["first", "last"] = Field(
        default="first",
        description="Which row stays, by event time, record timestamp, topic id, partition and offset. Allowed with a"
        " key only.",
        examples=["last"],
    )

    @model_validator(mode="after")
    def _key_is_a_set(self) -> "Deduplicate":
        if not self.key and "keep" in self.model_fields_set:
            raise ValueError(f"keep {self.keep} needs a key")
        twice = next((name for name, times in Counter(self.key).items() if times > 1), None)
        if twice is not None:
            raise ValueError(f"the column {twice} is in the key twice")
        return self


class Batch(Keys):
    """The reconcile run, which rebuilds, checks and publishes days."""

    schedule: Cron = Field(
        default="30 0 * * *",
        description="When a day's run starts: a cron expression of five fields, in the stream's time zone.",
        examples=["0 3 * * *"],
    )
    wait_seconds: int = Field(
        default=600,
        ge=0,
        le=30 * 86_400,
        description="Longest wait for the archive before a run fetches missing records from Kafka.",
        examples=[1800],
    )
    accept_loss: bool = Field(
        default=False,
        description="Whether a run may seal a day although Kafka deleted records before they were archived.",
        examples=[True],
    )
    approval: tuple[Literal["warnings", "losses"], ...] = Field(
        default=(),
        description="What a person has to approve before a run publishes it: days with failed checks of severity"
        " `warning`, days with losses that `accept_loss` does not accept, or both. Without the key, such a warning"
        " stops no run, and such a loss ends it.",
        examples=[["warnings", "losses"]],
    )
    approval_hours: float = Field(
        default=20,
        gt=0,
        le=7 * 24,
        description="How long a run in Airflow waits for the approval. Then it counts as rejected. Until then"
        " no further run of the stream begins.",
        examples=[4],
    )
    sealed_by: TimeOfDay | None = Field(
        default=None,
        description="When a day must be sealed: a time on the next day, in the stream's time zone. It must be after the"
        " start of the day's run. After it, a day without a seal is overdue. Without the key, that is 6 hours after the"
        " day's end.",
        examples=["06:00"],
    )
    reopen_days: int | None = Field(
        default=None,
        ge=0,
        le=36_500,
        description="How many days before the newest day of a run late records reopen. With `0`, a run rebuilds only"
        " requested days. Without the key, any sealed day reopens.",
        examples=[7],
    )
    late_data: Literal["next_run", "as_archived"] = Field(
        default="next_run",
        description="When sealed days reopen for late records. `next_run`: with the stream's next run. `as_archived`:"
        " the next check of `tidemark_watch` starts a run for them. `reopen_days` limits both.",
        examples=["as_archived"],
    )
    deduplicate: Deduplicate = Deduplicate()
    snapshot_retention_days: int = Field(
        default=90,
        ge=7,
        le=36_500,
        description="How long earlier states of the tables stay readable, for time travel and rollback.",
        examples=[30],
    )
    profile: Literal["default"] | None = Field(
        default=None,
        description="Checks from the stream's columns, all of severity `warning`, beside those of `checks`: row counts"
        " per day and hour, null shares, distinct texts and means against earlier days, and no nulls in the key of"
        " `deduplicate` and where the value's schema declares none. `tidemark streams` lists them.",
        examples=["default"],
    )
    checks: tuple[Check, ...] = ()

    @model_validator(mode="after")
    def _deadline_is_after_the_run(self) -> "Batch":
        if self.sealed_by is not None:
            before_midnight = datetime(2001, 1, 1, tzinfo=UTC) - timedelta(seconds=1)
            start = f"{croniter(self.schedule, before_midnight).get_next(datetime):%H:%M}"
            if self.sealed_by <= start:
                raise ValueError(f"sealed_by {self.sealed_by} is not after {start}, when the schedule starts the run")
        return self
