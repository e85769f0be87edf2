"""Publication and its conflicts on every type of catalog, and what each side says to reach it."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from threading import Barrier
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from tests.catalogs.conftest import TYPES, WAYS, Made, as_variables
from tests.catalogs.gate import CLIENT_SECRET, TOKEN, Gate
from tests.catalogs.postgres import DATABASE, PASSWORD, USER
from tests.catalogs.writer import MONDAY, SCHEMA, TUESDAY, Writer
from tidemark.installation import PROJECT
from tidemark.settings import Settings
from tidemark.stack.files import write_private
from tidemark.stack.local import LocalStack
from tidemark.tables.columns import DAY
from tidemark.tables.iceberg import IcebergTable
from tidemark.tables.reader import load_table

ENDINGS = ("published", "refused")


def published(settings: Settings, table: str) -> list[tuple[date, int]]:
    """The table's rows, as pyiceberg reads them."""
    found = load_table(settings, table)
    assert found is not None
    return sorted((row[DAY], row["n"]) for row in found.scan().to_arrow().to_pylist())


@pytest.mark.services
@pytest.mark.conformance(18)
@pytest.mark.parametrize("kind", TYPES)
def test_one_of_two_writers_of_a_day_wins_and_writers_of_other_days_do_not_disturb(
    spark: SparkSession, deployment: Made, kind: str
) -> None:
    settings, name = deployment(kind), f"t_{uuid4().hex[:8]}"
    assert load_table(settings, name) is None
    together = Barrier(2)

    def create(_: int) -> None:
        table = IcebergTable(spark, settings, name)
        together.wait(60)
        table.ensure(SCHEMA, {})

    with ThreadPoolExecutor() as pool:
        list(pool.map(create, range(2)))
        assert len(IcebergTable(spark, settings, name).history()) == 1
        ours = Writer(spark, settings, name, "ours").stage(MONDAY, 1, 2)
        theirs = Writer(spark, settings, name, "theirs").stage(MONDAY, 3)
        neighbour = Writer(spark, settings, name, "neighbour").stage(TUESDAY, 7)
        start = Barrier(3)
        ends = list(pool.map(lambda writer: writer.publish(start), (ours, theirs, neighbour)))
    assert (sorted(ends[:2]), ends[2]) == ([*ENDINGS], "published")
    monday = [(MONDAY, 1), (MONDAY, 2)] if ends[0] == "published" else [(MONDAY, 3)]
    assert published(settings, name) == [*monday, (TUESDAY, 7)]
    winner = "ours" if ends[0] == "published" else "theirs"
    runs = {item["summary"].get("tidemark.run") for item in ours.table.history()}
    assert runs == {None, winner, "neighbour"}


@pytest.mark.services
def test_both_sides_authenticate_in_the_way_of_the_properties(
    spark: SparkSession, deployment: Made, rest_gate: Gate
) -> None:
    for kind in WAYS:
        settings = deployment(kind)
        IcebergTable(spark, settings, "empty").ensure(SCHEMA, {})
        assert published(settings, "empty") == []
    key = settings.s3_access_key.get_secret_value()
    ways = {"OAuth2", "fixed token", f"signed by {key} for s3tables in eu-north-1"}
    assert rest_gate.seen == {(side, way) for side in ("java", "pyiceberg") for way in ways}
    assert rest_gate.refused == 0


@pytest.mark.services
def test_tables_are_where_the_settings_say_with_their_properties(spark: SparkSession, deployment: Made) -> None:
    before = deployment("oauth")
    own = {
        "table_location": f"s3://{before.bucket}/elsewhere/",
        "table_properties": {"team": "x", "write.parquet.compression-codec": "snappy"},
    }
    settings = before.model_copy(update=own)
    IcebergTable(spark, settings, "placed").ensure(SCHEMA, {})
    Writer(spark, settings, "placed", "first").stage(MONDAY, 5).publish(Barrier(1))
    table = load_table(settings, "placed")
    assert table is not None
    assert table.location() == f"s3://{settings.bucket}/elsewhere/placed"
    (file,) = table.inspect.files().to_pylist()
    assert file["file_path"].startswith(f"s3://{settings.bucket}/elsewhere/placed/data/")
    assert table.properties["team"] == "x"
    assert table.properties["write.parquet.compression-codec"] == "snappy"


PROGRAM = """\
import json, sys, urllib.request
from contextlib import suppress
from threading import Barrier
import psutil
from pydantic import Secret
from tests.catalogs.writer import MONDAY, SCHEMA, Writer
from tidemark.settings import settings
from tidemark.spark.conf import session_conf, session_secrets
from tidemark.spark.session import spark_session
from tidemark.tables.iceberg import IcebergTable
found = settings()
other = json.loads(sys.argv[2])
other = found.model_copy(update={**other, "catalog_properties": Secret(other["catalog_properties"])})
conf = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": sys.argv[1], "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false", "spark.ui.enabled": "true", "spark.ui.port": "0"}
spark = spark_session(found, "secrets", conf={**session_conf(other), **conf})
for name, text in session_secrets(other).items():
    spark.conf.set(name, text)
for each in (found, other):
    IcebergTable(spark, each, "hidden").ensure(SCHEMA, {})
print(Writer(spark, found, "hidden", "first").stage(MONDAY, 5).publish(Barrier(1)))
for page in ("environment/", "SQL/", "SQL/execution/?id=0", "jobs/", "stages/"):
    print(urllib.request.urlopen(spark.sparkContext.uiWebUrl + "/" + page).read().decode())
print(spark.sparkContext.getConf().toDebugString())
spark.sql("SET -v").show(1000, False)
for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
    with suppress(psutil.NoSuchProcess):  # or a zombie: a Python worker that has just ended
        print("arguments:", process.cmdline())
spark.stop()
"""


@pytest.mark.services
@pytest.mark.conformance(29)
def test_no_secret_of_a_catalog_is_in_arguments_configuration_pages_or_the_event_log(
    deployment: Made, postgres_url: str, stack: LocalStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And PostgreSQL's password file serves both sides."""
    file, events = tmp_path / "pgpass", tmp_path / "events"
    write_private(file, f"127.0.0.1:*:{DATABASE}:{USER}:{PASSWORD.replace(':', chr(92) + ':')}\n")
    events.mkdir()
    monkeypatch.setenv("PGPASSFILE", str(file))
    login = {"catalog_type": "jdbc", "catalog_uri": postgres_url, "catalog_properties": {"jdbc.user": USER}}
    other = {**login, "catalog": "on_password_file", "namespace": "by_file"}
    made = deployment("oauth")
    properties = {**made.catalog_properties.get_secret_value(), "header.X-Note": TOKEN}
    own = {**as_variables(made), "TIDEMARK_CATALOG_PROPERTIES": json.dumps(properties)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(events), json.dumps(other)],
        cwd=PROJECT,
        env={**os.environ, **stack.env, **own},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "published" in done.stdout
    assert any(line.startswith("arguments:") and "java" in line for line in done.stdout.splitlines())
    assert published(Settings.model_validate({**stack.settings.model_dump(), **other}), "hidden") == []
    (log,) = events.iterdir()
    shown = {"output": done.stdout, "messages": done.stderr, "event log": log.read_text(encoding="utf-8")}
    assert {name for name, text in shown.items() if "on_oauth.credential" in text} >= {"output", "event log"}
    assert [name for name, text in shown.items() for secret in (CLIENT_SECRET, TOKEN) if secret in text] == []
