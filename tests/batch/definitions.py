"""Random definitions of streams: types, names, transformations and keys as people write them, good and bad ones."""

import json
from dataclasses import dataclass
from random import Random
from typing import Any

from tidemark.definitions.own_checks import DISTINCT_VALUES, MEAN, NULL_SHARE

# Types of a JSON value, each with a value of its form.
LEAVES = {
    "BOOLEAN": True,
    "TINYINT": -128,
    "SMALLINT": 7,
    "INT": 12,
    "BIGINT": 2**62,
    "FLOAT": 1.5,
    "DOUBLE": -0.25,
    "DECIMAL(9,2)": "12.50",
    "DECIMAL(38,0)": 10**37,
    "STRING": "text",
    "BINARY": "AQI=",
    "DATE": "2013-01-31",
    "TIMESTAMP": "2013-01-31T05:15:00Z",
    "TIMESTAMP_NTZ": "2013-01-31T05:15:00",
}
OTHER_LEAVES = (
    "INTERVAL DAY TO SECOND",
    "INTERVAL YEAR TO MONTH",
    "INTERVAL",
    "VOID",
    "VARIANT",
    "CHAR(3)",
    "VARCHAR(9)",
    "STRING COLLATE UTF8_LCASE",
    "TIMESTAMP_LTZ",
    "STRUCT<>",
    "MAP<INT, STRING>",
    "MAP<STRUCT<a: INT>, STRING>",
    "UNKNOWN",
)
USUAL = ("a", "b", "c", "d", "id", "name")
NAMES = (
    *USUAL,
    *("at", "select", "event", "element", "key", "value", "_hidden", "_corrupt", "_pos", "_tidemark", "_day"),
    *("a.b", "a.c", "a b", "a-b", "a/b", "a=b", "a;b", "(a)", "1", "ä", "東京", "🌊", "x" * 200, "A", "B", "a\nb"),
    *("source", "event_time", "reject", "a`b", 'a"b', "a\\b", "partition", "timestamp"),
)
PLAIN_COLUMNS = ("F.lit(1.5)", "F.lit(b'a')", "F.lit(True)", "F.upper(F.lit('a'))", "F.lit(1).cast('tinyint')")
COLUMNS = (
    *PLAIN_COLUMNS,
    *("F.lit(None)", "F.array()", "F.create_map()", "F.struct()", "F.array(F.struct())", "F.array(F.lit(None))"),
    *("F.expr('INTERVAL 1 DAY')", "F.expr('INTERVAL 1 MONTH')", "F.expr('make_interval(1)')"),
    *("F.parse_json(F.lit('1'))", "F.collate(F.lit('a'), 'UTF8_LCASE')", "F.lit('a').cast('char(3)')"),
    *("F.create_map(F.lit(1), F.lit('a'))", "F.create_map(F.struct(F.lit(1).alias('k')), F.lit('a'))"),
    *("F.create_map(F.lit(b'k'), F.lit('a'))", "F.array(F.struct(F.lit(1).alias('k'), F.lit(2).alias('K')))"),
    *("F.struct(F.lit(1).alias('b'))", "F.struct(F.lit(1).alias('a.b'), F.struct(F.lit(1).alias('b')).alias('a'))"),
    *("F.to_json(F.struct(F.lit(1)))", "F.lit(0).cast('decimal(38,38)')", "F.current_date()", "F.rand()"),
    *("F.lit('2013-01-31').cast('timestamp_ntz')", "F.struct('event.*')", "F.col('event_time')"),
    *("F.col('source.key')", "F.col('source.headers')"),
)
CHECKS = (
    ("expect_column_values_to_not_be_null", "column"),
    ("expect_column_values_to_be_unique", "column"),
    (NULL_SHARE, "column"),
    (DISTINCT_VALUES, "column"),
    (MEAN, "column"),
    ("expect_compound_columns_to_be_unique", "column_list"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """The keys of a definition, its transformation (None: each field is a column), and a value of its form."""

    keys: dict[str, Any]
    transform: str | None
    value: bytes


def draw(random: Random) -> Drawn:
    """A definition with few odd parts: one with many would always be refused."""
    odd = random.choice((0, 0.05, 0.1, 0.2))
    names = random.sample(USUAL, random.randint(1, 4))
    names = [_name(random, name, odd) for name in names]
    kinds = [_kind(random, odd, 2) for _ in names]
    schema = ", ".join(f"`{name.replace('`', '``')}` {ddl}" for name, (ddl, _) in zip(names, kinds, strict=True))
    value = json.dumps({name: item for name, (_, item) in zip(names, kinds, strict=True)}).encode()
    columns, transform = names, None
    if random.random() < 0.6:
        columns, transform = _transform(random, names, odd)
    keys: dict[str, Any] = {"value_schema": schema}
    batch: dict[str, Any] = {}
    if random.random() < 0.4:
        batch["checks"] = [_check(random, columns) for _ in range(random.randint(1, 3))]
    if random.random() < 0.2:
        batch["deduplicate"] = {"key": random.sample(columns, 1)}
    if random.random() < 0.2:
        batch["profile"] = "default"
    if random.random() < 0.2:
        form = random.choice(("iso8601", "epoch_ms", "epoch_s"))
        keys["event_time"] = {"extractor": "record_field", "field": f"$.{names[0]}", "format": form}
    if random.random() < 0.2:
        keys["personal"] = [names[-1]]
    return Drawn(keys={**keys, "batch": batch}, transform=transform, value=value)


def _name(random: Random, name: str, odd: float) -> str:
    return random.choice(NAMES) if random.random() < 2 * odd else name


def _kind(random: Random, odd: float, depth: int) -> tuple[str, Any]:
    """A type in DDL, and a value of its form."""
    if random.random() < odd:
        return random.choice(OTHER_LEAVES), None
    shape = random.choice(("leaf", "leaf", "leaf", "struct", "array", "map")) if depth else "leaf"
    if shape == "leaf":
        return random.choice(tuple(LEAVES.items()))
    inside, item = _kind(random, odd, depth - 1)
    if shape == "array":
        return f"ARRAY<{inside}>", [item, item]
    if shape == "map":
        return f"MAP<STRING, {inside}>", {"k": item}
    other, second = _kind(random, odd, depth - 1)
    one, two = _name(random, "b", odd), _name(random, "e", odd)
    quoted = [f"`{name.replace('`', '``')}`" for name in (one, two)]
    return f"STRUCT<{quoted[0]}: {inside}, {quoted[1]}: {other}>", {one: item, two: second}


def _transform(random: Random, names: list[str], odd: float) -> tuple[list[str], str]:
    """The columns and the text of a transformation."""
    taken = [f"F.col('event')[{name!r}].alias({name!r})" for name in names]
    choice = COLUMNS if odd else PLAIN_COLUMNS
    made = {_name(random, f"made_{number}", odd): random.choice(choice) for number in range(random.randint(0, 2))}
    columns = [*taken, *(f"{text}.alias({name!r})" for name, text in made.items())]
    text = "from pyspark.sql import functions as F\n\ndef transform(records):\n"
    text += f"    return records.select('source', 'event_time', {', '.join(columns)})\n"
    return [*names, *made], text


def _check(random: Random, columns: list[str]) -> dict[str, Any]:
    expectation, argument = random.choice(CHECKS)
    chosen = random.choice(columns)
    value = chosen if argument == "column" else ["_offset", chosen]
    return {"expectation": expectation, "kwargs": {argument: value}, "severity": "warning"}
