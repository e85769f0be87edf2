"""Stream definitions: ``include/streams/<name>.yaml``, checked key by key.

The transformation stands beside the file as ``<name>.py`` with one ``transform(DataFrame) -> DataFrame``;
``tidemark.spark.process`` loads it. Nothing here imports Spark: Airflow reads these files when it parses DAGs.
"""

import json
import os
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import Field, PrivateAttr, TypeAdapter, ValidationError, computed_field, model_validator

from tidemark.connections.spark import SparkSettings
from tidemark.core.errors import ConfigError, TidemarkError
from tidemark.core.manifest import canonical_json, digest
from tidemark.core.text import did_you_mean, error_text, excerpt, quoted
from tidemark.definitions.check_catalogue import check_problems
from tidemark.definitions.own_checks import MEAN, STREAM_CHECKS
from tidemark.definitions.sections import (
    Archive,
    Batch,
    FieldPartitioner,
    FieldTime,
    Keys,
    RecordTime,
    Speed,
)
from tidemark.definitions.validation_messages import explanations, json_schema
from tidemark.definitions.values import Name, Personal, Renames, SchemaFile, SourceTopic, TimeZone
from tidemark.definitions.yaml_file import read_text, read_yaml

PROBLEMS_MAX = 20
_DECIDES_NO_TIME = {"on_unreadable", "unreadable_alarm_share"}  # of the keys of event_time
NAME_SHOWN = 60
AVRO_BYTES_MAX = 1024 * 1024
_NAME: TypeAdapter[str] = TypeAdapter(Name)


class _ProblemsError(Exception):
    """All problems of one definition, a line each."""

    def __init__(self, lines: list[str]) -> None:
        more = [f"and {len(lines) - PROBLEMS_MAX:,} more problems"] if len(lines) > PROBLEMS_MAX else []
        self.lines = [*lines[:PROBLEMS_MAX], *more]
        super().__init__("; ".join(self.lines))


class Stream(Keys):
    """One topic's definition. `topic`, `speed.topic` and `speed.dead_letter_topic` must differ."""

    name: Name = Field(description="Name of the stream. The file must have the same name.", examples=["flights"])
    description: str | None = Field(
        default=None,
        max_length=1000,
        description="What the stream is, for people. Its DAG's page begins with it.",
        examples=["Departures of the three airports of New York"],
    )
    owner: str = Field(
        default="tidemark",
        pattern=r"^[^,\n]{1,100}$",
        description="Who is asked about the stream: the owner of its DAG in Airflow.",
        examples=["flight-data-team"],
    )
    version: int = Field(
        default=1, ge=1, description="Version of this definition. Every live record carries it.", examples=[2]
    )
    topic: SourceTopic = Field(
        description="Kafka topic to read. Spark cannot read objects whose names start with `_` or `.`, so the topic's"
        " name must not either.",
        examples=["flights"],
    )
    time_zone: TimeZone = Field(
        default="UTC",
        description="Time zone from the IANA database. Days begin and end by its clocks.",
        examples=["America/New_York"],
    )
    value_format: Literal["json", "avro", "raw"] = Field(
        default="json", description="How values are decoded. `raw` values stay bytes.", examples=["avro"]
    )
    value_schema: str | None = Field(
        default=None,
        description="Schema of the value as Spark DDL. Required with `json`, not allowed otherwise.",
        examples=["carrier STRING, delay INT"],
    )
    avro_schema_file: SchemaFile | None = Field(
        default=None,
        description="Avro schema file in the YAML file's folder. Required with `avro`, not allowed otherwise.",
        examples=["flights.avsc"],
    )
    avro_earlier_schema_files: tuple[SchemaFile, ...] = Field(
        default=(),
        description="Avro schema files of earlier records, the newest first. Allowed with `avro` only.",
        examples=[["flights-2.avsc", "flights-1.avsc"]],
    )
    renamed: Renames = Field(
        default={},
        description="Earlier names of JSON fields and table columns, the newest first.",
        examples=[{"minutes": ["delay"]}],
    )
    personal: Personal = Field(
        default=(),
        description="Fields of the value, and columns of the table, with personal data. A name with dots is a field"
        " inside a field. Reports, logs and errors show `•••` in place of their values.",
        examples=[["email", "passenger.name"]],
    )
    event_time: RecordTime | FieldTime = Field(default=RecordTime(), discriminator="extractor")
    archive: Archive = Archive()
    speed: Speed
    batch: Batch = Batch()
    spark: SparkSettings = SparkSettings()
    _avro_schemas: tuple[str, ...] = PrivateAttr(default=())

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
        for key, form in (
            ("value_schema", "json"),
            ("avro_schema_file", "avro"),
            ("avro_earlier_schema_files", "avro"),
        ):
            if form != self.value_format and (found := getattr(self, key)):
                raise ValueError(f"{key}: value_format {self.value_format} has none, found {quoted(found)}")
        if self.value_format == "raw" and isinstance(self.event_time, FieldTime):
            raise ValueError("event_time.extractor: a raw value has no fields, found 'record_field'")
        if self.value_format == "raw" and isinstance(self.archive.partitioner, FieldPartitioner):
            raise ValueError("archive.partitioner.type: a raw value has no fields, found 'field'")
        return self

    @model_validator(mode="after")
    def _personal_data_is_in_no_key(self) -> "Stream":
        """Object keys have a partitioner's fields in them, and every page names days."""
        used = {}
        if isinstance(self.archive.partitioner, FieldPartitioner):
            used = {f"archive.partitioner.fields.{at}": path for at, path in enumerate(self.archive.partitioner.fields)}
        if isinstance(self.event_time, FieldTime):
            used["event_time.field"] = self.event_time.field
        for key, path in used.items():
            field = ".".join(re.findall(r"[^.\[\]'$]+", path)).casefold()
            for name in self.personal:
                if f"{field}.".startswith(f"{name.casefold()}.") or f"{name.casefold()}.".startswith(f"{field}."):
                    raise ValueError(f"{key}: expected a field that is not in personal, found {quoted(path)}")
        return self

    @computed_field  # type: ignore[prop-decorator]  # as pydantic documents it
    @property
    def avro_schema(self) -> str | None:
        """The text of ``avro_schema_file``. It is in the dump, so that a fingerprint shows a change."""
        return next(iter(self._avro_schemas), None)

    @computed_field  # type: ignore[prop-decorator]  # as pydantic documents it
    @property
    def avro_earlier_schemas(self) -> tuple[str, ...]:
        """The texts of ``avro_earlier_schema_files``."""
        return self._avro_schemas[1:]

    def with_avro_schemas(self, text: str, *earlier: str) -> Self:
        """The same definition with the texts of its schema files."""
        stream = self.model_copy()
        stream._avro_schemas = (text, *earlier)  # noqa: SLF001 - its own
        return stream

    @cached_property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.time_zone)

    @property
    def has_personal(self) -> bool:
        """Whether any field or column has personal data. Then raw values and the texts of errors may show it, too."""
        return bool(self.personal)

    def is_personal(self, column: str) -> bool:
        """Whether a column of the table has personal data, itself or in a field of it."""
        return column.casefold() in {name.partition(".")[0].casefold() for name in self.personal}

    @property
    def table(self) -> str:
        return self.name

    @property
    def quarantine_table(self) -> str:
        return f"{self.name}_quarantine"

    @property
    def archive_settings(self) -> str:
        """Fingerprint of everything that decides which rows share a file; 16 hex digits."""
        keys = {"time_zone", "event_time", "value_format"}
        by_field = isinstance(self.event_time, FieldTime) or isinstance(self.archive.partitioner, FieldPartitioner)
        if by_field:  # these keys decide where the fields are
            keys |= {key for key in ("avro_schema", "avro_earlier_schemas", "renamed") if getattr(self, key)}
        part = self.model_dump(mode="json", include=keys, exclude={"event_time": _DECIDES_NO_TIME})
        rotation = {"partitioner", "flush_size", "max_bytes", "rotate_interval_seconds", "max_folders"}
        part |= self.archive.model_dump(mode="json", include=rotation)
        return digest(canonical_json(part))[:16]

    @property
    def day_settings(self) -> str:
        """The keys that decide the day of a record, as a text. Two copies of a record with equal texts have one day."""
        decide = self.event_time.model_dump(mode="json", exclude=_DECIDES_NO_TIME)
        keys = {f"event_time.{key}": value for key, value in decide.items()}
        keys["time_zone"] = self.time_zone
        if isinstance(self.event_time, FieldTime):
            keys["value_format"] = self.value_format
            if self.renamed:
                keys["renamed"] = json.dumps(self.model_dump(mode="json")["renamed"], sort_keys=True)
            if self._avro_schemas:
                keys["avro_schemas"] = digest("\n".join(self._avro_schemas).encode())[:16]
        return ", ".join(f"{key}={value}" for key, value in keys.items())


def load_stream(name: str, folder: Path) -> Stream:
    """The stream defined in ``folder/<name>.yaml``.

    Raises ConfigError with the file, the key and what is allowed, whatever is wrong with the definition.
    """
    _require_name(name, folder)
    path = folder / f"{name}.yaml"
    if not path.exists():
        known = ", ".join(stream_names(folder)) or "none"
        hint = _renamed(name) if path.with_suffix(".yml").exists() else None
        raise ConfigError("no such stream", expected=f"one of: {known}", found=name, where=str(folder), hint=hint)
    try:
        return _load(name, folder, path)
    except ConfigError:
        raise
    except Exception as error:  # one definition must never stop those of other streams
        found = error_text(error)
        raise ConfigError("a definition can't be used", found=found, where=str(path)) from error


def _load(name: str, folder: Path, path: Path) -> Stream:
    read = read_yaml(path, json_schema(Stream), os.environ)
    found, lines = (None, []) if read.unresolved else _validated(read.value, folder)
    if found is None or read.unknown:
        problems = _ProblemsError([*lines, *read.unresolved, *read.unknown])
        raise ConfigError(str(problems), where=str(path)) from problems
    if found.name != name:
        raise ConfigError("name: must equal the file's name", expected=name, found=found.name, where=str(path))
    if found.avro_schema_file is None:
        return found
    files = {"avro_schema_file": found.avro_schema_file}
    files |= {f"avro_earlier_schema_files.{at}": file for at, file in enumerate(found.avro_earlier_schema_files)}
    return found.with_avro_schemas(*(_record_schema(key, folder / file, path) for key, file in files.items()))


def _validated(raw: Any, folder: Path) -> tuple[Stream | None, list[str]]:
    try:
        found = Stream.model_validate(raw)
    except ValidationError as error:
        return None, explanations(error, Stream)
    lines = [*check_problems(found.batch.checks), *_not_streams(found, folder), *_personal_means(found)]
    return (None, lines) if lines else (found, [])


def _not_streams(stream: Stream, folder: Path) -> Iterator[str]:
    """One line per check that compares with no other stream of the folder."""
    for number, check in enumerate(stream.batch.checks):
        other = check.kwargs.get("stream") if check.expectation in STREAM_CHECKS else None
        others = [name for name in stream_names(folder) if name != stream.name] if isinstance(other, str) else []
        if isinstance(other, str) and other not in others:
            near = did_you_mean(other, others)
            text = f"no other stream of that name, found {quoted(other)}{f'. {near}' if near else ''}"
            yield f"batch.checks.{number}.kwargs.stream: {text}"


def _personal_means(stream: Stream) -> Iterator[str]:
    """One line per check of a personal column whose figure may be a value: the mean of a day with one row is one."""
    for number, check in enumerate(stream.batch.checks):
        column = check.kwargs.get("column")
        if check.expectation == MEAN and check.severity != "none" and stream.is_personal(str(column)):
            text = f"expected a column that is not in personal, found {quoted(str(column))}"
            yield f"batch.checks.{number}.kwargs.column: {text}"


def _require_name(name: str, folder: Path) -> None:
    """A name becomes part of paths, keys and Airflow's ids, so it is checked before anything is made of it."""
    if name.endswith(".yml"):
        hint = _renamed(name.removesuffix(".yml"))
        raise ConfigError("not read", expected="<name>.yaml", found=quoted(name), where=str(folder), hint=hint)
    try:
        _NAME.validate_python(name)
    except ValidationError as error:
        raise ConfigError(
            "not the name of a stream",
            expected="a lower-case letter, then at most 62 lower-case letters, digits and '_', not ending in"
            " '_quarantine'",
            found=quoted(name),
            where=str(folder),
            hint="The file has the stream's name, then .yaml: rename it",
        ) from error


def _record_schema(key: str, path: Path, definition: Path) -> str:
    """The text of an Avro schema file. Only Spark's Avro can fully check it."""
    if not path.is_file():
        expected = f"a file {path}"
        raise ConfigError(f"{key}: no such file", expected=expected, found=path.name, where=str(definition))
    text = read_text(path, bytes_max=AVRO_BYTES_MAX)
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError("not JSON", found=error, where=str(path)) from error
    kind = schema.get("type") if isinstance(schema, dict) else schema
    if not isinstance(schema, dict) or kind != "record":
        found = excerpt(str(kind))
        raise ConfigError("not the Avro schema of a record", expected='"type": "record"', found=found, where=str(path))
    return text


def problems(error: TidemarkError) -> tuple[TidemarkError, ...]:
    """The problems in one error of ``load_stream``, each as an error of its own."""
    cause = error.__cause__
    if not isinstance(cause, _ProblemsError):
        return (error,)
    return tuple(ConfigError(text, where=error.where) for text in cause.lines)


def stream_names(folder: Path) -> tuple[str, ...]:
    """Names of the streams defined in a folder, sorted. Other files are in ``misnamed_files``."""
    return tuple(name for name, error in _files(folder) if error is None)


def misnamed_files(folder: Path) -> dict[str, ConfigError]:
    """The error of each YAML file in the folder whose name can't be a stream's, by that name, printable and cut."""
    return {excerpt(name, NAME_SHOWN): error for name, error in _files(folder) if error is not None}


def _files(folder: Path) -> Iterator[tuple[str, ConfigError | None]]:
    for path in sorted(folder.glob("*.y*ml")):
        if path.suffix not in {".yaml", ".yml"} or path.name.startswith("."):
            continue
        name = path.stem if path.suffix == ".yaml" else path.name
        try:
            _require_name(name, folder)
        except ConfigError as error:
            yield name, error
        else:
            yield name, None


def _renamed(name: str) -> str:
    return f"Rename {excerpt(name, NAME_SHOWN)}.yml to {excerpt(name, NAME_SHOWN)}.yaml"
