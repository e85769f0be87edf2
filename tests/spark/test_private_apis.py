"""The adapters to private APIs: each was proven with one version, does what it must, and is the only user."""

import io
import re
from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, LongType, StructType

from tests.conftest import MakeStream, Produce, unique
from tests.waiting import wait_until
from tidemark.core.errors import ServiceError
from tidemark.core.offsets import OffsetRange
from tidemark.installation import PROJECT
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.spark import file_list, java, kafka_tasks, task_input
from tidemark.spark.session import temporary_conf
from tidemark.spark.streaming import kafka_source
from tidemark.tables import iceberg
from tidemark.tables.columns import DAY
from tidemark.tables.iceberg import IcebergTable, Publication

CODE = [path for folder in ("include", "spark_apps", "dags", "plugins") for path in (PROJECT / folder).rglob("*.py")]


def require_proven(adapter: ModuleType, found: str, check: str) -> None:
    assert found == adapter.PROVEN_WITH, (
        f"{adapter.__name__} was proven with version {adapter.PROVEN_WITH}, found {found}. Check {check}, run the tests"
        " named in this file, then set PROVEN_WITH"
    )


def users(pattern: str) -> set[str]:
    found = (path for path in CODE if re.search(pattern, path.read_text(encoding="utf-8")))
    return {str(path.relative_to(PROJECT)) for path in found}


def test_pysparks_bridge_to_java_works_with_the_proven_version(spark: SparkSession) -> None:
    require_proven(java, spark.version, "_jvm, _jsparkSession, _jdf and _ensure_initialized in PySpark's sources")
    assert java.submitted_conf().get("spark.master") == spark.sparkContext.master
    assert java.jvm(spark).java.lang.Integer.parseInt("7") == 7
    assert java.java_session(spark).version() == spark.version
    assert java.java_frame(spark.range(3)).count() == 3
    assert java.executor_count(spark) == 1


def test_the_file_list_reads_exactly_its_objects(spark: SparkSession, settings: Settings, store: ObjectStore) -> None:
    """See tests/batch/test_slices.py, too."""
    require_proven(file_list, spark.version, "FileStreamSinkLog and SinkFileStatus in Spark's sources")
    folder = unique("files")
    for number, name in enumerate(("a", "b c+%é", "not-listed")):
        body = io.BytesIO()
        pq.write_table(pa.table({"n": [number, number]}), body)
        store.put(f"{folder}/{name}.parquet", body.getvalue())
    wanted = [item for item in store.list(f"{folder}/") if "not-listed" not in item.key]
    schema = StructType().add("n", LongType())
    rows = file_list.read_files(spark, schema, settings.bucket, wanted).select("n", F.col("_metadata.file_path"))
    paths = [file_list.file_uri(spark, settings.bucket, item.key) for item in wanted]
    assert sorted(map(tuple, rows.collect())) == sorted((n, path) for n, path in enumerate(paths) for _ in range(2))


def test_the_tasks_of_a_batch_name_their_offsets(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce
) -> None:
    """See tests/archive/test_fencing.py and tests/speed/test_exactly_once.py, too."""
    require_proven(kafka_tasks, spark.version, "DataSourceRDD and KafkaBatchInputPartition in Spark's sources")
    stream = make_stream(partitions=2)
    produce(stream.topic, [(None, b"{}", 0, number % 2, []) for number in range(10)])
    seen: list[list[list[tuple[int, OffsetRange]]]] = []

    def note(frame: DataFrame, _batch: int) -> None:
        seen.append(kafka_tasks.tasks_read(frame))

    source = kafka_source(spark, stream, settings, fail_on_data_loss=True)
    query = source.writeStream.foreachBatch(note).trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    assert [sorted(tasks) for tasks in seen] == [[[(number, OffsetRange(start=0, end=5))] for number in (0, 1)]]


@pytest.mark.conformance(73)
@pytest.mark.parametrize("fails", [False, True])
def test_a_task_knows_whether_its_rows_are_complete(spark: SparkSession, tmp_path: Path, *, fails: bool) -> None:
    require_proven(task_input, spark.version, "main of pyspark/worker.py, and ArrowStreamSerializer")
    seen = tmp_path / "seen"

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = 0
        try:
            for batch in task_input.whole(batches):
                rows += batch.num_rows
        except ServiceError as error:
            seen.write_text(f"{rows} rows: {error}")
            raise
        seen.write_text(f"{rows} rows")
        yield pa.record_batch([[rows]], names=["id"])

    value = F.when((F.col("id") == 9_000) & F.lit(fails), F.raise_error(F.lit("no"))).otherwise(F.col("id"))
    frame = spark.range(0, 10_000, 1, 1).select(value.cast("bigint").alias("id"))
    with temporary_conf(spark, {"spark.sql.execution.arrow.maxRecordsPerBatch": "4000"}):
        if fails:
            with pytest.raises((PySparkException, Py4JJavaError), match="USER_RAISED_EXCEPTION"):
                frame.mapInArrow(read, "id long").collect()
        else:
            assert [row.id for row in frame.mapInArrow(read, "id long").collect()] == [10_000]
    wait_until(lambda: seen.exists() and bool(seen.read_text()), "the task's Python process has written", 60)
    assert seen.read_text().startswith("8000 rows: a task's rows ended early" if fails else "10000 rows")


def test_icebergs_transactions_work_with_the_proven_version(spark: SparkSession, settings: Settings) -> None:
    """See tests/batch/test_publish.py and tests/batch/test_table_maintenance.py, too."""
    version = java.jvm(spark).org.apache.iceberg.IcebergBuild.version()
    require_proven(iceberg, version, "Table, ManageSnapshots, OverwriteFiles and Transaction in Iceberg's Javadoc")
    table, day = IcebergTable(spark, settings, unique("private")), date(2013, 1, 14)
    schema = StructType().add("n", LongType()).add(DAY, DateType())
    table.ensure(schema, {})
    staged = table.stage("audit_a", spark.createDataFrame([(1, day)], schema), [day], distribution="none")
    assert (staged.files, staged.rows) == (1, {day: 1})
    wanted = Publication(
        run="a",
        inputs="i",
        branch="audit_a",
        since=None,
        base=staged.base,
        staged=staged.snapshot,
        days=(day,),
        summary={},
        hint="",
    )
    assert table.publish(wanted).already is False
    assert table.publish(wanted).already is True
    assert (table.branches(), table.read("main").count()) == ({"main"}, 1)


@pytest.mark.parametrize(
    ("pattern", "adapters"),
    [
        (r"\._(jvm|jdf|jsparkSession|jsc|jc|jconf|sc|gateway)\b", ["spark/java"]),
        (r"_spark_metadata", ["spark/file_list"]),
        (r"DataSourceRDD", ["spark/kafka_tasks"]),
        (r"pyspark/worker", ["spark/task_input"]),
        (r"apache\.iceberg\b(?!\.(spark\.(extensions|SparkCatalog)|aws))", ["stack/rest_catalog", "tables/iceberg"]),
        (r"SLF001  # pyiceberg's", ["tables/catalogs"]),
    ],
)
def test_each_private_api_has_one_adapter(pattern: str, adapters: Iterable[str]) -> None:
    assert users(pattern) == {f"include/tidemark/{name}.py" for name in adapters}


def test_no_other_private_name_is_used_beside_kafkas_error_codes() -> None:
    """The linter's SLF001 finds private names. Excepted are constants of confluent_kafka, which are documented.

    And pyiceberg's client of Hive, which tests/catalogs/test_errors.py sees fail in time.
    """
    lines = [line for path in CODE for line in path.read_text(encoding="utf-8").splitlines() if "noqa: SLF001" in line]
    assert [line.strip() for line in lines if not re.search(r"KafkaError\._|its own|# pyiceberg's$", line)] == []
