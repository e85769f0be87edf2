"""A stream's definition checked against what will run it: Spark's parser, the transformation, Great Expectations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from tidemark.core.errors import ConfigError
from tidemark.core.json_path import steps
from tidemark.core.text import did_you_mean
from tidemark.definitions.check_catalogue import named_columns
from tidemark.definitions.own_checks import (
    DISTINCT_VALUES,
    HISTORY_CHECKS,
    MEAN,
    NULL_SHARE,
    OWN_CHECKS,
    VALUES_IN_STREAM,
)
from tidemark.definitions.sections import Check, FieldPartitioner, FieldTime, TimePartitioner
from tidemark.definitions.stream import Stream
from tidemark.reconcile.audit.checks import NEEDS_VALUES, Expected
from tidemark.reconcile.audit.expectations import evaluate
from tidemark.reconcile.audit.measure import measurable
from tidemark.reconcile.audit.profile import checks_of
from tidemark.spark.decode import REASON, decoded_schema
from tidemark.spark.fields import part
from tidemark.spark.paths import VALUE_CHARACTERS_MAX, folder_name, time_folder
from tidemark.spark.personal import unknown_names
from tidemark.spark.process import PLATFORM_COLUMNS, load_transform, shape
from tidemark.spark.records import no_rows, require_time
from tidemark.tables.columns import identity
from tidemark.tables.schema_evolution import Change, evolution

_PATTERN = "hourly, daily, or a pattern such as 'day='yyyy-MM-dd"
_KEY_BYTES_MAX = 900  # S3 takes 1024, the archive's prefix among them
_FILE_BYTES = len("+2147483647+++.parquet") + 20 + 20 + 4  # what follows the topic in a key
_MEASURED = {
    MEAN: "a column of numbers that is not personal",
    DISTINCT_VALUES: "a column that is no array, bytes, map, struct or variant",
}
_NESTED = (ArrayType, MapType, StructType)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """``columns``: the transformation's own, without ``reject``; empty where it could not be tried.

    ``table_columns``: those of the published table; empty likewise. ``changes``: what the next rebuild does to the
    columns of the published table. ``profile``: the checks that come from the stream's profile.
    """

    columns: tuple[str, ...]
    table_columns: tuple[str, ...] = ()
    problems: tuple[ConfigError, ...]
    changes: tuple[Change, ...] = ()
    profile: tuple[Check, ...] = ()


def check_definition(spark: SparkSession, stream: Stream, folder: Path, *, table: StructType | None = None) -> Checked:
    """Everything that would stop the stream's applications, found without a row and without a server.

    ``folder`` is the streams' folder, ``table`` the columns of the published table where it is there and known. Only
    the session is needed: no jars, no Kafka, no S3.
    """
    where, module = (str(folder / f"{stream.name}.{ending}") for ending in ("yaml", "py"))
    schema, problems = _event(stream, folder, where)
    if schema is not None:
        problems += _event_time(stream, schema, where)
    problems += _partitioner(spark, stream, schema, where)
    columns: list[str] = []
    plain: list[str] = []
    published = StructType()
    changes: tuple[Change, ...] = ()
    try:
        transform = load_transform(stream, folder)
        if schema is not None:
            decoded = no_rows(spark, decoded_schema(stream))
            good = shape(decoded, stream, transform).drop(REASON)
            columns = [name for name in good.columns if name not in PLATFORM_COLUMNS]
            plain = [name for name in columns if not isinstance(good.schema[name].dataType, _NESTED)]
            published = good.select(*identity(F.current_date(), ""), *(f"`{name}`" for name in columns)).schema
    except ConfigError as error:
        problems.append(_found_in(module, error))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a user's module raises
        found = f"{type(error).__name__}: {_first_line(error)}"
        problems.append(ConfigError("transform fails", expected="a DataFrame", found=found, where=module))
    key = stream.speed.key
    if columns and key is not None and key not in plain:
        problems.append(_not_among("speed.key: not a plain column of the transformation", key, plain, where))
    problems += [
        _not_among(f"batch.deduplicate.key.{number}: not a plain column of the transformation", name, plain, where)
        for number, name in enumerate(stream.batch.deduplicate.key)
        if columns and name not in plain
    ]
    wrong = _columns(stream.batch.checks, published.names, where) if columns else []
    wrong += _without_figures(stream, published, columns, where) if columns and not wrong else []
    problems += wrong
    if columns and not wrong:
        # Not no_rows: the checks must run, so that a wrong regular expression shows.
        problems += _tried(spark.createDataFrame([], published), stream.batch.checks, where)
    if schema is not None and columns:
        problems += unknown_names(stream, schema, StructType([published[name] for name in columns]), where)
        problems += _renamed(stream, {*schema.names, *columns}, where)
    if columns:
        wanted = evolution(table or StructType(), published, stream.renamed)
        changes = wanted.changes if table else ()
        text = f"table {stream.table} can't {'take a change' if table else 'be made'}"
        problems += [ConfigError(text, found=item, where=module) for item in wanted.refused]
    of_profile = () if schema is None else checks_of(stream, published)
    return Checked(
        columns=tuple(columns),
        table_columns=tuple(published.names),
        problems=tuple(problems),
        changes=changes,
        profile=tuple(item for item in of_profile if item not in stream.batch.checks),
    )


def _renamed(stream: Stream, names: set[str], where: str) -> list[ConfigError]:
    allowed = sorted(names)
    text = "renamed: neither a field of the value nor a column of the transformation"
    return [_not_among(text, name, allowed, where) for name in stream.renamed if name not in names]


def _event(stream: Stream, folder: Path, where: str) -> tuple[StructType | None, list[ConfigError]]:
    """The type of the stream's events, None where its schema is wrong."""
    try:
        event = decoded_schema(stream)["event"].dataType
    except ConfigError as error:
        file = str(folder / str(error.where)) if stream.value_format == "avro" else where
        return None, [_found_in(file, error)]
    assert isinstance(event, StructType)
    return event, []


def _event_time(stream: Stream, schema: StructType, where: str) -> list[ConfigError]:
    if not isinstance(stream.event_time, FieldTime):
        return []
    kind, problems = _field(stream, schema, stream.event_time.field, "event_time.field", where)
    if kind is not None:
        try:
            require_time(kind, stream, stream.event_time)
        except ConfigError as error:
            problems.append(_found_in(where, error))
    return problems


def _field(
    stream: Stream, schema: StructType, path: str, key: str, where: str
) -> tuple[DataType | None, list[ConfigError]]:
    """The type of the field at a JSON path; None below a STRING, which may hold any object, and for a wrong path."""
    json = stream.value_format == "json"
    inner: DataType = schema
    for number, step in enumerate(steps(path)):
        if json and number and isinstance(inner, StringType):
            return None, []
        try:
            _, inner = part(F.lit(None), inner, step)
        except ConfigError as error:
            problem = f"{key}: not a field of {'value_schema' if json else stream.avro_schema_file}"
            found = str(step) if json and not number else f"{step} of {path}"
            hint = did_you_mean(str(step), inner.names) if isinstance(inner, StructType) else None
            return None, [ConfigError(problem, expected=error.expected, found=found, where=where, hint=hint)]
    return inner, []


def _partitioner(spark: SparkSession, stream: Stream, schema: StructType | None, where: str) -> list[ConfigError]:
    key = "archive.partitioner"
    match stream.archive.partitioner:
        case FieldPartitioner(fields=paths):
            problems = []
            for number, path in enumerate(paths):
                if schema is not None:
                    problems += _field(stream, schema, path, f"{key}.fields.{number}", where)[1]
                if path in paths[:number]:
                    text = f"{key}.fields.{number}: a field twice"
                    problems.append(ConfigError(text, expected="each field once", found=path, where=where))
            levels = sum(len(folder_name(path)) + len("=/") + VALUE_CHARACTERS_MAX for path in paths)
            longest = len(f"data/{stream.name}/{stream.topic}") + levels + _FILE_BYTES
            if longest > _KEY_BYTES_MAX:
                text = f"{key}.fields: object keys would be longer than S3 takes"
                expected = f"at most {_KEY_BYTES_MAX} bytes without the archive's prefix"
                problems.append(ConfigError(text, expected=expected, found=f"up to {longest}", where=where))
            return problems
        case TimePartitioner(pattern=pattern):
            return _time_pattern(spark, pattern, f"{key}.path_format", where)
    return []


def _time_pattern(spark: SparkSession, pattern: str, key: str, where: str) -> list[ConfigError]:
    """The pattern tried on two moments that differ in every part."""
    moments = spark.createDataFrame(pa.table({"us": [1_357_016_399_123_456, 1_718_801_704_987_654]}))
    text = F.date_format(F.timestamp_micros("us"), pattern)
    try:
        rows = moments.select(text.alias("text"), time_folder(text).alias("folder")).collect()
    except PySparkException as error:
        found = f"{pattern!r}, of which Spark says: {_first_line(error)}"
        return [ConfigError(f"{key}: not a datetime pattern", expected=_PATTERN, found=found, where=where)]
    if rows[0].text != rows[0].folder:
        expected = "folders of letters, digits and =_.- that begin with neither _ nor ."
        return [ConfigError(f"{key}: not a folder", expected=expected, found=repr(rows[0].text), where=where)]
    if rows[0].text == rows[1].text:
        one = f"{key}: every record would be in one folder"
        return [ConfigError(one, expected=_PATTERN, found=repr(pattern), where=where)]
    return []


def _columns(checks: Sequence[Check], columns: list[str], where: str) -> list[ConfigError]:
    """The columns that checks name and the published table does not have."""
    return [
        _not_among(f"batch.checks.{number}.kwargs.{argument}: not a column of the table", column, columns, where)
        for number, check in enumerate(checks)
        for argument, column in named_columns(check.expectation, check.kwargs)
        if column not in columns
    ]


def _without_figures(stream: Stream, published: StructType, columns: list[str], where: str) -> list[ConfigError]:
    """Checks against earlier days of columns that no run measures: they would never be judged."""
    wrong = []
    for number, check in enumerate(stream.batch.checks):
        expectation = check.expectation
        if expectation not in HISTORY_CHECKS or "column" not in check.kwargs or check.severity == "none":
            continue
        key, name = f"batch.checks.{number}.kwargs.column", str(check.kwargs["column"])
        kind, personal = published[name].dataType, stream.is_personal(name)
        if name not in columns:
            wrong.append(_not_among(f"{key}: not a column of the transformation", name, columns, where))
        elif not measurable(expectation, kind, personal=personal):
            others = (item for item in (DISTINCT_VALUES, NULL_SHARE) if measurable(item, kind, personal=personal))
            wrong.append(
                ConfigError(
                    f"{key}: {expectation} can't judge the column",
                    expected=_MEASURED[expectation],
                    found=f"{name} {kind.simpleString().upper()}{', which is personal' if personal else ''}",
                    where=where,
                    hint=f"Use {' or '.join(others)}",
                )
            )
    return wrong


def missing_stream_columns(stream: Stream, columns: Mapping[str, Sequence[str]], folder: Path) -> list[ConfigError]:
    """The columns of other streams that checks name and those streams' tables do not have.

    ``columns`` has the columns of each stream's table, none of one that could not be tried.
    """
    where = str(folder / f"{stream.name}.yaml")
    return [
        _not_among(
            f"batch.checks.{number}.kwargs.stream_column: not a column of the table of {other}", name, known, where
        )
        for number, check in enumerate(stream.batch.checks)
        if check.expectation == VALUES_IN_STREAM and check.severity != "none"
        for other, name in [(str(check.kwargs["stream"]), str(check.kwargs["stream_column"]))]
        for known in [list(columns.get(other, ()))]
        if known and name not in known
    ]


def _tried(rows: DataFrame, checks: Sequence[Check], where: str) -> list[ConfigError]:
    """Problems that only show where the checks are made: an expression that Spark refuses, bounds that cross."""
    own = {
        number: Expected.of(check)
        for number, check in enumerate(checks)
        if check.severity != "none" and check.expectation not in OWN_CHECKS
    }
    outcomes = evaluate(rows, list(own.values())) if own else []
    return [
        ConfigError(
            f"batch.checks.{number}: {item.expected.expectation} can't be evaluated",
            expected="a check that Great Expectations can make on Spark",
            found=item.exception,
            where=where,
        )
        for number, item in zip(own, outcomes, strict=True)
        if item.exception is not None and item.expected.expectation not in NEEDS_VALUES
    ]


def _not_among(problem: str, found: str, allowed: list[str], where: str) -> ConfigError:
    hint = did_you_mean(found, allowed)
    expected = f"one of: {', '.join(allowed)}" if allowed else "a name that there is, but there is none"
    return ConfigError(problem, expected=expected, found=found, where=where, hint=hint)


def _found_in(file: str, error: ConfigError) -> ConfigError:
    """The error with the file to mend; the applications know only the stream's name."""
    return ConfigError(error.problem, expected=error.expected, found=error.found, where=file, hint=error.hint)


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "no message")
