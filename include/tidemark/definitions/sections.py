"""The groups of keys in a stream definition, with the types of their values."""

import re
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from croniter import CroniterBadDateError, croniter
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from tidemark.core.renames import require_once


def _time_zone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ValueError("not a time zone of the IANA database, such as Europe/Berlin") from error
    return value


def _visible(value: str) -> str:
    """Spark, like Hadoop, passes over files whose names start so: their rows would never be rebuilt."""
    if value.startswith(("_", ".")):
        raise ValueError(f"{value!r} starts with '_' or '.': Spark does not read objects of such a name")
    return value


def _own_table(value: str) -> str:
    if value.endswith("_quarantine"):
        raise ValueError(f"the table {value} is for what stream {value.removesuffix('_quarantine')} quarantines")
    return value


def _json_path(value: str) -> str:
    if not re.match(r"\$\.[^.\[\]]", value):
        raise ValueError("not the JSON path of a field, which starts with '$.', such as $.departed_at")
    return value


def _cron(value: str) -> str:
    """Five fields: croniter also takes a sixth, of seconds, and days such as 31 February that never come."""
    if len(value.split()) != 5 or not croniter.is_valid(value):
        raise ValueError("not a cron expression of five fields, such as '0 * * * *'")
    try:
        croniter(value).get_next()
    except CroniterBadDateError as error:
        raise ValueError("a cron expression of days that never come") from error
    return value


_SHORTHANDS = {
    "hourly": "'year='yyyy/'month='MM/'day='dd/'hour='HH",
    "daily": "'year='yyyy/'month='MM/'day='dd",
}

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$"), AfterValidator(_own_table)]
Topic = Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]{1,249}$")]
SourceTopic = Annotated[Topic, AfterValidator(_visible)]
TimeZone = Annotated[str, AfterValidator(_time_zone)]
Renames = Annotated[dict[str, tuple[str, ...]], AfterValidator(require_once)]
SchemaFile = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$")]


class Keys(BaseModel):
    """A group of keys: no other one is allowed."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class RecordTime(Keys):
    """Event time is the Kafka record's own timestamp."""

    extractor: Literal["record"] = "record"


class FieldTime(Keys):
    """Event time is a field of the JSON value; a record whose field is missing or no time keeps its own timestamp."""

    extractor: Literal["record_field"]
    field: Annotated[str, AfterValidator(_json_path)] = Field(description="JSON path of the field, e.g. $.departed_at")
    format: Literal["iso8601", "epoch_ms", "epoch_s"] = "iso8601"


class DefaultPartitioner(Keys):
    """One folder per Kafka partition."""

    type: Literal["default"] = "default"


class FieldPartitioner(Keys):
    """One folder per value of some fields of the value, nested in their order: ``carrier=UA/origin=JFK``."""

    type: Literal["field"]
    fields: tuple[Annotated[str, AfterValidator(_json_path)], ...] = Field(
        min_length=1, description="JSON paths of the fields, e.g. [$.carrier]"
    )


class TimePartitioner(Keys):
    """One folder per span of time, in the stream's zone. Wall clock is the micro-batch's, fixed with its range."""

    type: Literal["time"]
    path_format: str = Field(
        default="hourly", description="hourly, daily, or a Spark datetime pattern; literals in quotes"
    )
    clock: Literal["event_time", "wall_clock"] = "event_time"

    @property
    def pattern(self) -> str:
        """The Spark datetime pattern, shorthands written out."""
        return _SHORTHANDS.get(self.path_format, self.path_format)


class Storage(Keys):
    """How S3 is to keep data objects; None leaves the bucket's own default."""

    storage_class: str | None = Field(default=None, pattern=r"^[A-Z][A-Z0-9_]*$")
    encryption: Literal["AES256", "aws:kms"] | None = None
    kms_key: str | None = None
    tags: dict[str, str] = Field(default={}, max_length=10)

    @model_validator(mode="after")
    def _key_needs_kms(self) -> "Storage":
        if self.kms_key is not None and self.encryption != "aws:kms":
            raise ValueError(f"kms_key needs encryption aws:kms, found {self.encryption}")
        return self


class Archive(Keys):
    """How records are cut into objects. Sizes are per file; a micro-batch is the unit of commit."""

    partitioner: DefaultPartitioner | FieldPartitioner | TimePartitioner = Field(
        default=DefaultPartitioner(), discriminator="type"
    )
    flush_size: int = Field(default=500_000, ge=1, description="records per file")
    max_bytes: int = Field(default=256 * 1024 * 1024, ge=1, description="bytes of keys and values per file")
    rotate_interval_seconds: float | None = Field(
        default=None, gt=0, description="event time a file may span, from its first record on"
    )
    rotate_schedule: Annotated[str, AfterValidator(_cron)] | None = Field(
        default=None, description="cron, in the stream's time zone: everything there is gets archived then"
    )
    max_open_files: int = Field(default=20, ge=1, description="per task; rows of further paths wait on local disk")
    part_bytes: int = Field(default=25_000_000, ge=5 * 1024 * 1024, description="bytes per multipart part")
    trigger_seconds: float = Field(default=10, ge=0)
    min_offsets_per_trigger: int | None = Field(default=None, ge=1)
    max_trigger_delay_seconds: float = Field(
        default=900, gt=0, description="the longest that min_offsets_per_trigger holds a batch back"
    )
    max_offsets_per_trigger: int | None = Field(default=None, ge=1)
    on_loss: Literal["stop", "continue"] = "stop"
    retention_alarm_hours: float = Field(
        default=24, ge=0, description="alarm where Kafka may delete the first unarchived record so soon, or sooner"
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
    """The live topic."""

    topic: Topic
    dead_letter_topic: Topic
    delivery: Literal["at_least_once", "exactly_once"] = "at_least_once"
    key: str | None = Field(
        default=None, description="the output column to key records by; else the source's key is kept"
    )
    partitioning: Literal["key", "source"] = Field(
        default="key", description="by the key's hash, or the number that the record's partition has in the source"
    )
    trigger_seconds: float = Field(default=1, ge=0)
    max_offsets_per_trigger: int | None = Field(default=None, ge=1)
    transaction_records: int = Field(
        default=100_000, ge=1, description="exactly_once: records per transaction, at most"
    )


class Check(Keys):
    """One Great Expectations expectation. ``kwargs`` are the expectation's own."""

    expectation: str = Field(pattern=r"^expect_[a-z_]+$")
    kwargs: dict[str, Any] = {}
    severity: Literal["critical", "warning"] = "critical"


class Deduplicate(Keys):
    """Of a day's good rows with the same values of ``key`` one is published; without a key all of them are."""

    key: tuple[str, ...] = Field(default=(), description="columns of the transformation")
    keep: Literal["first", "last"] = Field(default="first", description="by event time, record timestamp, position")

    @model_validator(mode="after")
    def _key_is_a_set(self) -> "Deduplicate":
        if not self.key and "keep" in self.model_fields_set:
            raise ValueError(f"keep {self.keep} needs a key")
        twice = [name for name in self.key if self.key.count(name) > 1]
        if twice:
            raise ValueError(f"the column {twice[0]} is in the key twice")
        return self


class Batch(Keys):
    """The daily rebuild."""

    schedule: Annotated[str, AfterValidator(_cron)] = Field(
        default="30 0 * * *", description="cron, in the stream's time zone"
    )
    wait_seconds: int = Field(
        default=600, ge=0, description="how long to wait for the archive before a refill from Kafka"
    )
    accept_loss: bool = Field(default=False, description="seal a day although retention took records from it")
    reopen_days: int | None = Field(
        default=None,
        ge=0,
        le=36_500,
        description="late records reopen days up to a run's newest requested one, at most so many before it",
    )
    deduplicate: Deduplicate = Deduplicate()
    snapshot_retention_days: int = Field(
        default=90, ge=7, le=36_500, description="how long earlier snapshots stay readable"
    )
    checks: tuple[Check, ...] = ()
