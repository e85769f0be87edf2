"""Stream definitions: ``include/streams/<name>.yaml``, checked key by key.

The transformation stands beside the file as ``<name>.py`` with one ``transform(DataFrame) -> DataFrame``;
``tidemark.spark.process`` loads it. Nothing here imports Spark: Airflow reads these files when it parses DAGs.
"""

import json
import re
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import yaml
from croniter import CroniterBadDateError, croniter
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    computed_field,
    model_validator,
)

from tidemark.core.errors import ConfigError, TidemarkError
from tidemark.core.manifest import canonical_json, digest
from tidemark.core.renames import require_once
from tidemark.explain import explanations


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
Format = Literal["parquet", "jsonl.gz", "jsonl.zst"]


class _Loader(yaml.SafeLoader):
    """YAML without its trap: of a key given twice, PyYAML silently takes the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT002 - as PyYAML has it
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
        for number, key in enumerate(keys):
            if key in keys[:number]:
                told = f"the key {key!r} is given twice"
                raise yaml.constructor.ConstructorError(None, None, told, node.value[number][0].start_mark)
        return super().construct_mapping(node, deep)


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RecordTime(_Model):
    """Event time is the Kafka record's own timestamp."""

    extractor: Literal["record"] = "record"


class FieldTime(_Model):
    """Event time is a field of the JSON value; a record whose field is missing or no time keeps its own timestamp."""

    extractor: Literal["record_field"]
    field: Annotated[str, AfterValidator(_json_path)] = Field(description="JSON path of the field, e.g. $.departed_at")
    format: Literal["iso8601", "epoch_ms", "epoch_s"] = "iso8601"


class DefaultPartitioner(_Model):
    """One folder per Kafka partition."""

    type: Literal["default"] = "default"


class FieldPartitioner(_Model):
    """One folder per value of some fields of the value, nested in their order: ``carrier=UA/origin=JFK``."""

    type: Literal["field"]
    fields: tuple[Annotated[str, AfterValidator(_json_path)], ...] = Field(
        min_length=1, description="JSON paths of the fields, e.g. [$.carrier]"
    )


class TimePartitioner(_Model):
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


class Storage(_Model):
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


class Archive(_Model):
    """How records are cut into objects. Sizes are per file; a micro-batch is the unit of commit."""

    partitioner: DefaultPartitioner | FieldPartitioner | TimePartitioner = Field(
        default=DefaultPartitioner(), discriminator="type"
    )
    format: Format = "parquet"
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
    on_loss: Literal["stop", "go_on"] = "stop"
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


class Speed(_Model):
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


class Check(_Model):
    """One Great Expectations expectation. ``kwargs`` are the expectation's own."""

    expectation: str = Field(pattern=r"^expect_[a-z_]+$")
    kwargs: dict[str, Any] = {}
    severity: Literal["critical", "warning"] = "critical"


class Deduplicate(_Model):
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


class Batch(_Model):
    """The daily rebuild."""

    schedule: Annotated[str, AfterValidator(_cron)] = Field(
        default="30 0 * * *", description="cron, in the stream's time zone"
    )
    wait_seconds: int = Field(
        default=600, ge=0, description="how long to wait for the archive before a refill from Kafka"
    )
    accept_loss: bool = Field(default=False, description="seal a day although retention took records from it")
    reopen_days: int | None = Field(
        default=None, ge=0, description="days before a run's newest one that late records reopen by themselves"
    )
    deduplicate: Deduplicate = Deduplicate()
    snapshot_retention_days: int = Field(default=90, ge=7, description="how long earlier snapshots stay readable")
    checks: tuple[Check, ...] = ()


class Stream(_Model):
    """One topic's definition."""

    name: Name
    version: int = Field(default=1, ge=1)
    topic: SourceTopic
    time_zone: TimeZone = "UTC"
    value_format: Literal["json", "avro", "raw"] = "json"
    value_schema: str | None = Field(
        default=None, description="with json: Spark DDL of the value, e.g. 'carrier STRING, delay INT'"
    )
    avro_schema_file: str | None = Field(
        default=None, pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$", description="with avro: a file beside the YAML"
    )
    renamed: Renames = {}
    event_time: RecordTime | FieldTime = Field(default=RecordTime(), discriminator="extractor")
    archive: Archive = Archive()
    speed: Speed
    batch: Batch = Batch()
    _avro_schema: str | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _topics_differ(self) -> "Stream":
        topics = (self.topic, self.speed.topic, self.speed.dead_letter_topic)
        if len(set(topics)) != len(topics):
            raise ValueError(f"topic, speed.topic and speed.dead_letter_topic must differ, found {topics}")
        return self

    @model_validator(mode="after")
    def _value_is_described(self) -> "Stream":
        needed = {"json": "value_schema", "avro": "avro_schema_file", "raw": None}[self.value_format]
        if needed is not None and getattr(self, needed) is None:
            raise ValueError(f"{needed}: missing, value_format {self.value_format} needs it")
        for key in ("value_schema", "avro_schema_file"):
            if key != needed and getattr(self, key) is not None:
                raise ValueError(f"{key}: value_format {self.value_format} has none, found {getattr(self, key)!r}")
        if self.value_format == "raw" and isinstance(self.event_time, FieldTime):
            raise ValueError("event_time.extractor: a raw value has no fields, found 'record_field'")
        if self.value_format == "raw" and isinstance(self.archive.partitioner, FieldPartitioner):
            raise ValueError("archive.partitioner.type: a raw value has no fields, found 'field'")
        return self

    @computed_field  # type: ignore[prop-decorator]  # as pydantic documents it
    @property
    def avro_schema(self) -> str | None:
        """The text of ``avro_schema_file``, as ``load_stream`` read it; with it in a dump, a hash sees it change."""
        return self._avro_schema

    def with_avro_schema(self, text: str) -> Self:
        """The same definition with the text of its ``avro_schema_file``."""
        stream = self.model_copy()
        stream._avro_schema = text  # noqa: SLF001 - its own
        return stream

    @cached_property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.time_zone)

    @property
    def table(self) -> str:
        """The published table's name inside the Iceberg namespace."""
        return self.name

    @property
    def quarantine_table(self) -> str:
        return f"{self.name}_quarantine"

    @property
    def archive_settings(self) -> str:
        """Fingerprint of everything that decides which rows share a file; 16 hex digits."""
        keys = {"time_zone", "event_time", "value_format"}
        by_field = isinstance(self.event_time, FieldTime) or isinstance(self.archive.partitioner, FieldPartitioner)
        if by_field and self.avro_schema is not None:
            keys.add("avro_schema")  # it says where those fields are; otherwise no row's file depends on it
        if by_field and self.renamed:
            keys.add("renamed")
        part = self.model_dump(mode="json", include=keys)
        cuts = self.archive.model_dump(
            mode="json", include={"partitioner", "format", "flush_size", "max_bytes", "rotate_interval_seconds"}
        )
        return digest(canonical_json({**part, **cuts}))[:16]


def load_stream(name: str, folder: Path) -> Stream:
    """The stream defined in ``folder/<name>.yaml``.

    Raises ConfigError that names the file, the key, what was found there and what is allowed.
    """
    path = folder / f"{name}.yaml"
    if not path.exists():
        known = ", ".join(stream_names(folder)) or "none"
        raise ConfigError("no such stream", expected=f"one of: {known}", found=name, where=str(folder))
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), _Loader)  # noqa: S506 - a safe loader
    except UnicodeDecodeError as error:
        raise ConfigError("not UTF-8", found=error, where=str(path)) from error
    except yaml.YAMLError as error:
        raise ConfigError("not YAML", found=str(error).replace("\n", " "), where=str(path)) from error
    try:
        stream = Stream.model_validate(raw)
    except ValidationError as error:
        raise ConfigError("; ".join(explanations(error, Stream)), where=str(path)) from error
    if stream.name != name:
        raise ConfigError("name: must equal the file's name", expected=name, found=stream.name, where=str(path))
    if stream.avro_schema_file is None:
        return stream
    return stream.with_avro_schema(_record_schema(folder / stream.avro_schema_file, path))


def _record_schema(path: Path, definition: Path) -> str:
    """The text of an Avro schema file; that it is sound Avro only Spark's own Avro can tell."""
    if not path.is_file():
        found = path.name
        raise ConfigError(
            "avro_schema_file: no such file", expected=f"a file {path}", found=found, where=str(definition)
        )
    try:
        schema = json.loads(text := path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ConfigError("not UTF-8", found=error, where=str(path)) from error
    except ValueError as error:
        raise ConfigError("not JSON", found=error, where=str(path)) from error
    kind = schema.get("type") if isinstance(schema, dict) else schema
    if not isinstance(schema, dict) or kind != "record":
        raise ConfigError("not the Avro schema of a record", expected='"type": "record"', found=kind, where=str(path))
    return text


def problems(error: TidemarkError) -> tuple[TidemarkError, ...]:
    """The problems told in one error of ``load_stream``, each as an error of its own."""
    cause = error.__cause__
    if not isinstance(cause, ValidationError):
        return (error,)
    return tuple(ConfigError(text, where=error.where) for text in explanations(cause, Stream))


def stream_names(folder: Path) -> tuple[str, ...]:
    """Names of the streams defined in a folder, sorted."""
    return tuple(sorted(path.stem for path in folder.glob("*.yaml")))
