"""Decode values of every format to the stream's event: strictly, in the JVM, with a reason for each refused value."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, StringType, StructField, StructType

from tidemark.core.renames import Renamed
from tidemark.definitions.stream import Stream
from tidemark.spark.avro import avro_exact, avro_parsed, avro_type
from tidemark.spark.calendar import outside_calendar
from tidemark.spark.fields import STRICT_JSON, any_value
from tidemark.spark.json_forms import (
    as_read,
    converted,
    deep,
    form,
    misfits,
    number_like,
    numbers_as_text,
    strings_as_variants,
)
from tidemark.spark.records import ARCHIVE_SCHEMA, LOCAL_TIME_FORMAT, unreadable_time
from tidemark.spark.value_schema import MARK, value_schema

REASON = "_reason"

TOMBSTONE = "the value is null (a tombstone)"
NOT_UTF8 = "the value is not UTF-8"
NOT_JSON = "the value is not one JSON object"
NOT_SCHEMA = "a field of the value does not fit the stream's value_schema"
NOT_AVRO = "the value is not exactly one Avro record of the stream's avro_schema_file"
NOT_BARE = f"{NOT_AVRO}; it begins like Confluent's wire format, which is not supported"
NOT_ONE_SCHEMA = "the value is a record of several of the stream's Avro schemas, which give it different values"
NOT_UTF8_TEXT = "a string in the value is not UTF-8"
NO_CALENDAR = "a time in the value is outside of the years 1 to 9999"

_RAW = StructType().add("value", BinaryType())
_SOURCE = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
_PARSED = "_parsed"
_FOUND = "_found"
_SENT = "_sent"
_DEEP = "_deep"
_UNREADABLE = "_unreadable"
_CORRUPT = "_corrupt"
_JSON = {
    **STRICT_JSON,
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "dateFormat": "yyyy-MM-dd",
    "timestampNTZFormat": LOCAL_TIME_FORMAT,
}
# Without a field for broken texts: a stream's own field may have its name.
_JSON_ALONE = {**_JSON, "columnNameOfCorruptRecord": f"{MARK}{_CORRUPT}"}
# A character beyond 16 bits is escaped in two halves. UTF-8 can't hold one half alone: Spark reads a question mark.
_ESCAPE = r"\u"
_WHOLE = r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_HALF = r"\\u[dD][89a-fA-F]"
_NAMES_MAX = 5


def decode(records: DataFrame, stream: Stream) -> DataFrame:
    """Rows of ARCHIVE_SCHEMA as source (with ``_reason``, null for a good value), event_time and event.

    A good value without a time that can be read has a reason, too, if the stream rejects such records.
    """
    unreadable = unreadable_time(stream)
    if unreadable is not None:
        records = records.withColumn(_UNREADABLE, unreadable)
    match stream.value_format:
        case "json":
            return _json(records, value_schema(stream), stream.renamed)
        case "avro":
            return _avro(records, stream)
        case "raw":
            reason = F.when(F.col("value").isNull(), TOMBSTONE)
            return _decoded(records, reason, F.when(reason.isNull(), F.struct("value")))


def decoded_schema(stream: Stream) -> StructType:
    """The columns of ``decode``, found without decoding: Avro's decoder is in a jar."""
    source = StructType([ARCHIVE_SCHEMA[name] for name in _SOURCE]).add(REASON, StringType())
    event = _RAW
    if stream.value_format != "raw":
        event = avro_type(stream) if stream.value_format == "avro" else value_schema(stream)
    return StructType().add("source", source).add(ARCHIVE_SCHEMA["event_time"]).add("event", event)


def _decoded(parsed: DataFrame, reason: Column, event: Column) -> DataFrame:
    if _UNREADABLE in parsed.columns:
        reason = F.coalesce(reason, F.col(_UNREADABLE))
    source = F.struct(*_SOURCE, reason.alias(REASON))
    return parsed.select(source.alias("source"), "event_time", event.alias("event"))


def _once(column: Column) -> Column:
    """The column, marked as not deterministic: else the optimizer copies the parser into each filter, 4 × slower."""
    return F.when(F.spark_partition_id() >= 0, column)


def _json(records: DataFrame, event_schema: StructType, renamed: Renamed) -> DataFrame:
    """``from_json`` reads the first object of a text and ignores the rest. So the value is parsed inside a list between
    two marks that no text can predict: a text that is not exactly one value breaks the list or moves the marks.

    A renamed field is read under all its names; the first one that is not null counts.
    """
    earlier = {new: renamed[new] for new in event_schema.names if new in renamed}
    schema = StructType(list(event_schema.fields))
    for new, olds in earlier.items():
        for old in olds:
            schema.add(old, event_schema[new].dataType)
    item = as_read(schema).add(MARK, StringType())
    wrapper = StructType().add("event", ArrayType(item)).add(_CORRUPT, StringType())
    text, mark = F.col("value").cast("string"), F.xxhash64("value").cast("string")
    marked = F.concat(F.lit(f'{{"{MARK}":"'), mark, F.lit('"}'))
    wrapped = F.concat(F.lit('{"event":['), marked, F.lit(","), text, F.lit(","), marked, F.lit("]}"))
    parsed = records.select("*", F.from_json(_once(wrapped), wrapper, _JSON).alias(_PARSED), deep(text).alias(_DEEP))
    read, found = F.get(f"{_PARSED}.event", F.lit(1)), F.col(_FOUND)
    parsed = parsed.withColumn(_FOUND, _once(converted(read.dropFields(MARK), schema, F.col(_DEEP))))
    event = found.dropFields(*(f"`{old}`" for olds in earlier.values() for old in olds)) if earlier else found
    for new, olds in earlier.items():
        event = event.withField(f"`{new}`", F.coalesce(*(found[name] for name in (new, *olds))))
    first, last = (F.get(f"{_PARSED}.event", F.lit(at))[MARK] for at in (0, 2))
    alone = (F.size(f"{_PARSED}.event") == 3) & first.eqNullSafe(mark) & last.eqNullSafe(mark)
    # Only a value with a text that may have been a number is parsed again.
    sent = F.when(number_like(found, schema), F.from_json(text, strings_as_variants(schema), _JSON_ALONE))
    parsed = parsed.withColumn(_SENT, _once(sent))
    misfit = misfits(read, found, schema, text) | numbers_as_text(found, F.col(_SENT), schema)
    reason = (
        F.when(text.isNull(), TOMBSTONE)
        .when(~F.is_valid_utf8(text), NOT_UTF8)
        .when(F.col(_PARSED).isNull(), NOT_SCHEMA)
        .when(read.isNull() | ~F.coalesce(alone, F.lit(False)), NOT_JSON)
        .when(text.contains(_ESCAPE) & F.regexp_replace(text, _WHOLE, "").rlike(_HALF), NOT_UTF8_TEXT)
        .when(F.col(f"{_PARSED}.{_CORRUPT}").isNotNull() | misfit, _misfit(text, read, schema))
    )
    judged = parsed.withColumn(REASON, _once(reason))
    return _decoded(judged, F.col(REASON), F.when(F.col(REASON).isNull(), event))


def _misfit(text: Column, read: Column, schema: StructType) -> Column:
    """NOT_SCHEMA with the fields that have a value in the text and none as their type, and the form expected.

    Inside a field, an integer or boolean may be wrong while the field has other parts: it is not named.
    """
    texts = StructType([StructField(name, StringType()) for name in schema.names])
    parses = F.struct(
        text.alias("value"),
        F.from_json(text, texts, _JSON_ALONE).alias("text"),
        read.alias("read"),
        F.col(_FOUND),
        F.col(_SENT),
    )

    def named(parse: Column) -> Column:
        wrong = []
        for field in schema:
            name, kind = field.name, field.dataType
            given, got, found, sent = (parse[part][name] for part in ("text", "read", _FOUND, _SENT))
            missing = given.isNotNull() & found.isNull()
            other = missing | misfits(got, found, kind, parse["value"]) | numbers_as_text(found, sent, kind)
            wrong.append(F.when(other, F.lit(f"{name} is not {form(kind)}")))
        first = F.array_join(F.slice(F.array_compact(F.array(*wrong)), 1, _NAMES_MAX), "; ")
        return F.concat_ws(": ", F.lit(NOT_SCHEMA), F.nullif(first, F.lit("")))

    # Inside a lambda the parsed text is a variable: as an expression it would be parsed for each name.
    return F.transform(F.array(parses), named)[0]


def _avro(records: DataFrame, stream: Stream) -> DataFrame:
    value, kind = F.col("value"), avro_type(stream)
    parsed = records.select("*", avro_parsed(stream, _once(value)).alias(_PARSED))
    found = F.col(_PARSED)
    reason = (
        F.when(value.isNull(), TOMBSTONE)
        .when(~avro_exact(found, value) & (F.substring(value, 1, 1) == b"\0") & (F.length(value) > 5), NOT_BARE)
        .when(~avro_exact(found, value), NOT_AVRO)
        .when(found["event"].isNull(), NOT_ONE_SCHEMA)
        .when(any_value(found["event"], kind, (StringType,), lambda text, _: ~F.is_valid_utf8(text)), NOT_UTF8_TEXT)
        .when(outside_calendar(found["event"], kind), NO_CALENDAR)
    )
    return _decoded(parsed, reason, F.when(reason.isNull(), found["event"]))
