"""Schema evolution: a table follows its definition, and days of before are rebuilt, verified and rolled back."""

import json
from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, NullType, StructType
from typer.testing import CliRunner

from tests.batch.logs import MONDAY, TUESDAY, Log, at
from tests.batch.steps import pass_audit
from tests.conftest import TRANSFORM, MakeStream, Produce, unique
from tidemark.archive.stream.driver import archive
from tidemark.cli.app import app
from tidemark.core.errors import ConfigError
from tidemark.current_view.frame import current
from tidemark.reconcile.plan.step import finalize_plan_run, plan_run
from tidemark.reconcile.publish import publish_run
from tidemark.reconcile.rebuild.step import rebuild_run
from tidemark.reconcile.results import REBUILD
from tidemark.reconcile.rollback import rollback_day
from tidemark.reconcile.seal import seal_run
from tidemark.run import Run
from tidemark.settings import Settings
from tidemark.tables.iceberg import IcebergTable
from tidemark.tables.reader import load_table
from tidemark.tables.schema_evolution import evolution, table_columns
from tidemark.verify.day import verify_day

pytestmark = pytest.mark.conformance(49)

BEFORE = "id INT, delay FLOAT, price DECIMAL(6,2), trip STRUCT<stops: INT>"
AFTER = "id BIGINT, carrier STRING, minutes DOUBLE, price DECIMAL(8,2), trip STRUCT<via: STRING, stops: BIGINT>"
RENAMED = {"minutes": ("delay",)}
LINEAGE = (
    "_day DATE, _topic_id STRING, _kafka_partition INT, _offset BIGINT, _timestamp TIMESTAMP, _event_time TIMESTAMP"
)
Row = tuple[int, int, str | None, float | None, Decimal, tuple[str | None, int]]


def fields(ddl: str) -> StructType:
    found = StructType.fromDDL(ddl)
    assert isinstance(found, StructType)
    return found


@pytest.mark.parametrize(
    ("table", "definition", "renamed", "changes"),
    [
        (BEFORE, BEFORE, {}, []),
        ("a INT, b STRING", "b STRING, a INT NOT NULL", {}, []),
        ("a INT", "a SMALLINT", {}, []),
        (
            BEFORE,
            AFTER,
            RENAMED,
            [
                "column delay renamed to minutes",
                "column id widened from int to bigint",
                "column carrier string added",
                "column minutes widened from float to double",
                "column price widened from decimal(6,2) to decimal(8,2)",
                "column trip.via string added",
                "column trip.stops widened from int to bigint",
            ],
        ),
        (
            "l ARRAY<STRUCT<a: INT>>, m MAP<STRING, FLOAT>",
            "l ARRAY<STRUCT<a: INT, b: DATE>>, m MAP<STRING, DOUBLE>",
            {},
            ["column l.element.b date added", "column m.value widened from float to double"],
        ),
        ("a INT", "c INT", {"c": ("b", "a")}, ["column a renamed to c"]),
        ("a INT, b INT", "a INT, c INT", {"c": ("a", "b")}, ["column b renamed to c"]),
        ("a INT, c INT", "a INT, c INT", {"c": ("a",)}, []),
        ("b INT", "a INT, b INT, c INT", {"c": ("a",)}, ["column a int added", "column c int added"]),
        ("c INT", "c INT", {"c": ("b", "a")}, []),
    ],
)
@pytest.mark.usefixtures("spark")
def test_what_makes_a_table_the_definitions(
    table: str, definition: str, renamed: Mapping[str, Sequence[str]], changes: list[str]
) -> None:
    found = evolution(fields(table), fields(definition), renamed)
    assert ([str(item) for item in found.changes], found.refused) == (changes, ())
    assert sorted(found.columns.names) == sorted(fields(definition).names)


@pytest.mark.usefixtures("spark")
def test_every_lossy_change_is_refused_with_both_types_and_what_to_do() -> None:
    table = "a BIGINT, b DOUBLE, c DECIMAL(8,2), d STRING, e STRUCT<x: INT, y: INT>, f MAP<STRING, INT>, g INT, h INT"
    wanted = fields("a INT, b STRING, c DECIMAL(8,3), e STRUCT<x: INT>, f MAP<INT, INT>, h INT, i DATE, j INT")
    other = "or give the column of the new type another name"
    dropped = "keep it, as CAST(NULL AS string) if records no longer have it"
    both = "deploy the rename first, then add the other h"
    wanted = wanted.add("k", NullType()).add("l", ArrayType(NullType()))
    found = evolution(fields(table), wanted, {"i": ("g",), "j": ("h",)})
    assert [str(item) for item in found.refused] == [
        f"column a: table bigint, definition int (cast it to bigint, {other})",
        f"column b: table double, definition string (cast it to double, {other})",
        f"column c: table decimal(8,2), definition decimal(8,3) (cast it to decimal(8,2), {other})",
        "column e.y: table int, definition none (keep it, as CAST(NULL AS int) if records no longer have it)",
        f"column f: table map<string,int>, definition map<int,int> (cast it to map<string,int>, {other})",
        f"column i: table int, definition date (cast it to int, {other})",
        f"column j: table none, definition int (the definition renames h and also has a column h: {both})",
        "column k: table none, definition void (cast it to its intended type)",
        "column l.element: table none, definition void (cast it to its intended type)",
        f"column d: table string, definition none ({dropped}, or list it under 'renamed' of its new name)",
    ]
    with pytest.raises(ConfigError, match=r"(?s)can't become the definition's.*column a.*column d.*\[here\]"):
        found.require_allowed("here")


def test_a_run_whose_neighbour_changes_the_table_first_finds_nothing_left_to_do(
    spark: SparkSession, settings: Settings
) -> None:
    class SupersededTable(IcebergTable):
        """The neighbour commits between its read of the table and its commit."""

        neighbours: tuple[str, ...] = ()

        def _columns(self, schema: Any) -> StructType:
            if not self.neighbours:
                changed = IcebergTable(spark, settings, name).ensure(after, RENAMED)
                self.neighbours = tuple(map(str, changed))
            return super()._columns(schema)

    name = unique("evolving")
    before, after = (fields(f"{LINEAGE}, {ddl}") for ddl in (BEFORE, AFTER))
    assert IcebergTable(spark, settings, name).ensure(before, {}) == ()
    late = SupersededTable(spark, settings, name)
    assert late.ensure(after, RENAMED) == late.ensure(after, RENAMED) == ()
    assert len(late.neighbours) == 7
    table = load_table(settings, name)
    assert table is not None
    assert evolution(table_columns(table), after, {}).changes == ()
    assert [item.name for item in table.schema().fields][6:] == ["id", "minutes", "price", "trip", "carrier"]
    assert len(table.metadata.schemas) == 2


def test_a_table_with_a_column_of_no_type_is_not_made(spark: SparkSession, settings: Settings) -> None:
    table = IcebergTable(spark, settings, unique("untyped"))
    with pytest.raises(ConfigError, match=r"found column x: table none, definition void \(cast it"):
        table.ensure(fields(f"{LINEAGE}, id INT").add("x", NullType()), {})
    assert not spark.catalog.tableExists(table.identifier)


def test_a_column_with_a_dot_in_its_name_is_added_widened_and_renamed(spark: SparkSession, settings: Settings) -> None:
    table = IcebergTable(spark, settings, unique("dotted"))
    table.ensure(fields(f"{LINEAGE}, `a.b` INT, `c.d` STRING"), {})
    changes = table.ensure(fields(f"{LINEAGE}, `a.b` BIGINT, `e.f` STRING, `g.h` DATE"), {"e.f": ("c.d",)})
    assert [str(item) for item in changes] == [
        "column c.d renamed to e.f",
        "column a.b widened from int to bigint",
        "column g.h date added",
    ]
    found = spark.table(table.identifier).schema
    assert [item.simpleString() for item in found][6:] == ["a.b:bigint", "e.f:string", "g.h:date"]


def reconciled(log: Log, spark: SparkSession, name: str, *days: date) -> Run:
    run = log.run(name)
    plan_run(run, days, False)
    finalize_plan_run(run)
    for step in (rebuild_run, pass_audit, publish_run):
        step(run, spark)
    seal_run(run)
    return run


def shaped(values: Mapping[int, Mapping[str, Any]]) -> list[Row]:
    """The oracle: offset → value, read by hand into the columns of AFTER."""
    return [
        (
            offset,
            value["id"],
            value.get("carrier"),
            value["minutes"] if value.get("minutes") is not None else value.get("delay"),
            Decimal(value["price"]),
            (value["trip"].get("via"), value["trip"]["stops"]),
        )
        for offset, value in sorted(values.items())
    ]


def rows(frame: DataFrame, day: date) -> list[Row]:
    taken = frame.where(frame["_day"] == day).selectExpr("_offset", "id", "carrier", "minutes", "price", "trip")
    found = [(*item[:5], (item.trip.via, item.trip.stops)) for item in taken.collect()]
    return sorted(found, key=lambda item: item[0])


def test_old_days_are_read_rebuilt_verified_and_rolled_back_across_a_change(
    settings: Settings, make_stream: MakeStream, produce: Produce, spark: SparkSession
) -> None:
    def define(**changes: Any) -> Log:
        speed = first.speed.model_dump(mode="json")
        zone, batch = "America/New_York", {"wait_seconds": 0}
        stream = make_stream(name=name, topic=topic, speed=speed, time_zone=zone, batch=batch, **changes)
        return Log(stream=stream, settings=settings, produce_records=produce)

    def send(moment: int, *values: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
        bodies = [json.dumps(value).encode() for value in values]
        offsets = produce(topic, [(b"k", body, moment, 0, []) for body in bodies])
        archive(spark, log.stream, settings, available_now=True)
        return dict(zip(offsets, values, strict=True))

    def table() -> DataFrame:
        return spark.table(f"{settings.catalog}.{settings.namespace}.{name}")

    first = make_stream(value_schema=BEFORE)
    name, topic = first.name, first.topic
    log = define(value_schema=BEFORE)
    old = {"id": 1, "delay": 1.5, "price": "3.25", "trip": {"stops": 2}}
    monday = send(at(MONDAY, 9), old, {**old, "delay": None}, {"id": "broken"})
    del monday[2]
    tuesday = send(at(TUESDAY, 9), old)
    reconciled(log, spark, "first", MONDAY, TUESDAY)
    version_1 = shaped(monday)
    assert table().columns[6:] == ["id", "delay", "price", "trip"]

    # The definition is changed, and records of both shapes come late. Only looking changes nothing.
    log = define(value_schema=AFTER, renamed={key: list(names) for key, names in RENAMED.items()})
    new = {"id": 2**40, "minutes": 2.25, "price": "123456.78", "trip": {"stops": 2**40, "via": "x"}, "carrier": "UA"}
    monday |= send(at(MONDAY, 10), new, {**old, "id": 7, "delay": 4.5}, {**new, "delay": 9.0})
    view = current(spark, settings, name)
    assert (rows(view, MONDAY), rows(view, TUESDAY)) == (shaped(monday), shaped(tuesday))
    assert table().columns[6:] == ["id", "delay", "price", "trip"]

    # The next rebuild changes the table, once, and the rows of days that it does not rebuild with it.
    second = reconciled(log, spark, "second", MONDAY)
    assert len(second.require(REBUILD).columns_changed) == 7
    assert table().columns[6:] == ["id", "minutes", "price", "trip", "carrier"]
    assert (rows(table(), MONDAY), rows(table(), TUESDAY)) == (shaped(monday), shaped(tuesday))

    # Version 1 comes back in the columns of now.
    assert rollback_day(log.run("back"), spark, day=MONDAY, version=1).version == 3
    assert rows(table(), MONDAY) == version_1
    assert [verify_day(settings, name, day).verdict for day in (MONDAY, TUESDAY)] == ["proven", "proven"]


def test_the_command_shows_what_a_definition_does_to_its_table(
    spark: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = unique("evolving"), unique("evolving")
    for name, renamed in zip(names, ({"minutes": ["delay"]}, {}), strict=True):
        IcebergTable(spark, settings, name).ensure(fields(f"{LINEAGE}, {BEFORE}"), {})
        wanted = {"name": name, "topic": name, "value_schema": BEFORE.replace("delay", "minutes"), "renamed": renamed}
        wanted["speed"] = {"topic": f"{name}.live", "dead_letter_topic": f"{name}.dead"}
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(wanted), encoding="utf-8")
        (tmp_path / f"{name}.py").write_text(TRANSFORM, encoding="utf-8")
    own = settings.model_copy(update={"streams_dir": tmp_path})
    monkeypatch.setattr("tidemark.cli.streams.connect", lambda _: own)
    # The command ends its Spark, which is all tests' here.
    monkeypatch.setattr(SparkSession, "stop", lambda _self: None)
    done = CliRunner().invoke(app, ["streams"])
    right, costs, wrong, problem = done.stdout.splitlines()
    changes = "the next rebuild changes the table: column delay renamed to minutes"
    assert right == f"{names[0]}  ok: definition, transformation (4 columns), 0 checks, table; {changes}"
    assert costs.startswith("  S3 in a day with 1 partition and records at all times: at most ")
    assert wrong == f"{names[1]}  invalid: 1 problem"
    assert problem.startswith(f"  table {names[1]} can't take a change: found column delay: table float, definition no")
    assert done.exit_code == 1
    for name in names:
        assert IcebergTable(spark, settings, name).ensure(fields(f"{LINEAGE}, {BEFORE}"), {}) == ()
