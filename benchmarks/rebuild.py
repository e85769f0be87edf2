"""Compares the rebuild of a day with second copies in the archive with a plain copy and with ``dropDuplicates``.

The archive has one day, 4 partitions and ranges of 100,000 offsets. 30 % of its records are second copies, from a
stream that lost its checkpoint twice. The three variants run in turn, in one Spark session, with the same S3 server.
The order changes from run to run, and the heap is cleared before each run. The median of several runs counts:

ranges           step ``rebuild``: reads the plan, slices, both audit branches, every count
copy             an archive without second copies, read as a folder by Spark's Parquet reader
drop_duplicates  the archive with copies, read as a folder, then dropDuplicates on topic, partition and offset

All three decode and transform the same records with the stream's own code, and write the same columns into an existing
Iceberg table with the same properties. The other two keep no counts, quarantine nothing and would not notice a missing
object. Planning (``make bench-plan``), the audit's checks and publication are not measured.

Values are raw by default, so that parsing does not hide the differences. This is strict for the ratio to the copy, and
favourable for the ratio to dropDuplicates. Interleaved copies, where every object is trimmed, are not measured.

Then the step runs as its own application, with a quarter of the records and with twice as many, to measure the peak
resident size of its JVM and Python processes. The last line is JSON: median seconds of ranges ÷ those of the others,
and the peak MiB.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import permutations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import yaml
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.table import Table

from benchmarks.common import MIB, VALUE_BYTES, VALUE_SCHEMA, Times, console
from benchmarks.overlapping import DAY, LOGS, TOPIC_ID, archive_day, overlapping
from tidemark.core.offsets import OffsetRange
from tidemark.installation import PROJECT
from tidemark.reconcile.rebuild.step import rebuild_run
from tidemark.reconcile.results import REBUILD
from tidemark.run import Run
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.spark.java import jvm
from tidemark.spark.process import PLATFORM_COLUMNS, load_transform, process
from tidemark.spark.records import ARCHIVE_SCHEMA, day
from tidemark.spark.session import spark_session
from tidemark.stack.local import LocalStack
from tidemark.tables.columns import DAY as DAY_COLUMN
from tidemark.tables.columns import branch_name, identity
from tidemark.tables.iceberg import IcebergTable

COPIES = 0.3
RUN = "bench"
SAMPLE_S = 0.1
TRANSFORM = 'def transform(records):\n    return records.select("source", "event_time", "event.*")\n'


def main() -> None:
    """Run the benchmark; see ``--help``."""
    options = _options()
    with TemporaryDirectory(prefix="tidemark-bench-") as folder:
        streams = Path(folder) / "streams"
        streams.mkdir()
        with LocalStack("bench-rebuild", root=Path(folder), streams_dir=streams, fresh=True) as stack:
            os.environ.update(stack.env)
            result: dict[str, Any] = _ratios(stack.settings, options)
            table = Table("Archived records", title="Peak of the rebuild's JVM and Python together")
            table.add_column("MiB", justify="right")
            result["peak_mib"] = {}
            for records in (options.records // 4, options.records * 2):
                peak = _peak_mib(stack, options, records)
                table.add_row(f"{records:,}", str(peak))
                result["peak_mib"][f"{records / 1e6:g}m"] = peak
    console.print(table)
    console.print(json.dumps(result), soft_wrap=True, highlight=False)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--records",
        type=int,
        default=20_000_000,
        help=f"archived, copies included, {VALUE_BYTES} bytes each (20,000,000)",
    )
    parser.add_argument("--runs", type=int, default=5, help="of each of the three, after a warm-up run (5)")
    parser.add_argument("--values", choices=("raw", "json"), default="raw", help="json: values are parsed (raw)")
    return parser.parse_args()


def _ratios(settings: Settings, options: argparse.Namespace) -> dict[str, float]:
    spans = overlapping(options.records, COPIES)
    distinct = OffsetRange(start=0, end=spans[-1].end)
    twice, once = _run(settings, "twice", options.values), _run(settings, "once", options.values)
    archive_day(twice, spans)
    archive_day(once, [distinct])
    # Spark's default number of shuffle partitions, for dropDuplicates; the platform uses 4.
    spark = spark_session(settings, "bench-rebuild", conf={"spark.sql.shuffle.partitions": "200"})
    table = IcebergTable(spark, settings, twice.stream.table)
    variants = _variants(spark, twice, once, table)
    times = {name: Times() for name in variants}
    orders = list(permutations(variants))

    try:
        for number in range(options.runs + 1):
            for name in orders[number % len(orders)]:
                jvm(spark).java.lang.System.gc()
                with times[name].of(name, number):
                    written = variants[name]()
                _require_each_once(written, distinct)
                clear(table, spark, branch_name(twice.name))
    finally:
        spark.stop()
    _empty(settings)
    ratios = {name: times["ranges"].median / found.median for name, found in times.items()}
    console.print(_ratios_table(times, ratios, options, len(distinct) * len(LOGS)))
    return {f"ratio_{name}": round(ratios[name], 3) for name in ("copy", "drop_duplicates")}


def _ratios_table(
    times: dict[str, Times], ratios: dict[str, float], options: argparse.Namespace, distinct: int
) -> Table:
    table = Table(
        "", title=f"{options.records:,} archived records, {distinct:,} of them distinct, {options.values} values"
    )
    for column in (*Times.COLUMNS, "Ranges ÷ it"):
        table.add_column(column, justify="right")
    for name, found in times.items():
        table.add_row(name, *found.cells(distinct), f"{ratios[name]:.2f}")
    return table


def _run(settings: Settings, name: str, values: str) -> Run:
    """A run of a new stream."""
    definition = {
        "name": name,
        "topic": LOGS[0].topic,
        "value_format": values,
        **({"value_schema": VALUE_SCHEMA} if values == "json" else {}),
        "speed": {"topic": f"{name}.live", "dead_letter_topic": f"{name}.dead-letter"},
    }
    (settings.streams_dir / f"{name}.yaml").write_text(yaml.safe_dump(definition), encoding="utf-8")
    (settings.streams_dir / f"{name}.py").write_text(TRANSFORM, encoding="utf-8")
    return Run.open(name, RUN, settings)


def _variants(spark: SparkSession, twice: Run, once: Run, table: IcebergTable) -> dict[str, Callable[[], DataFrame]]:
    """Each variant writes the day and returns the written rows. The first warm-up run creates the table."""
    coordinates = ["topic", "partition", "offset"]
    return {
        "ranges": lambda: _by_ranges(spark, twice, table),
        "copy": lambda: _plainly(_objects(spark, once), once, table),
        "drop_duplicates": lambda: _plainly(_objects(spark, twice).dropDuplicates(coordinates), twice, table),
    }


def _by_ranges(spark: SparkSession, run: Run, table: IcebergTable) -> DataFrame:
    rebuild_run(run, spark)
    return table.read(branch_name(run.name))


def _plainly(rows: DataFrame, run: Run, table: IcebergTable) -> DataFrame:
    _published(rows, run).writeTo(table.identifier).overwrite(F.col(DAY_COLUMN) == DAY)
    return rows.sparkSession.table(table.identifier)


def _objects(spark: SparkSession, run: Run) -> DataFrame:
    """Everything below the stream's folder, as anybody would read it."""
    reader = spark.read.schema(ARCHIVE_SCHEMA).option("recursiveFileLookup", True)
    return reader.parquet(f"s3a://{run.settings.bucket}/{run.layout.data_prefix}")


def _published(rows: DataFrame, run: Run) -> DataFrame:
    """Archived rows in the published table's columns."""
    good = process(rows, run.stream, load_transform(run.stream, run.settings.streams_dir)).good
    own = [name for name in good.columns if name not in PLATFORM_COLUMNS]
    return good.select(*identity(day(run.stream), TOPIC_ID), *own)


def clear(table: IcebergTable, spark: SparkSession, branch: str) -> None:
    """Remove the rows and everything written with them, so that the table is as before the run."""
    spark.sql(f"ALTER TABLE {table.identifier} DROP BRANCH IF EXISTS `{branch}`")
    spark.sql(f"DELETE FROM {table.identifier}")  # noqa: S608 - a name of ours
    expired = f"table => '{table.identifier}', older_than => TIMESTAMP '9999-01-01 00:00:00', retain_last => 1"
    spark.sql(f"CALL {table.identifier.partition('.')[0]}.system.expire_snapshots({expired})")


def _require_each_once(written: DataFrame, distinct: OffsetRange) -> None:
    """Exit unless every record was written exactly once."""
    offset = F.col("_offset")
    found = written.groupBy("_kafka_partition").agg(F.count(offset), F.min(offset), F.max(offset), F.sum(offset))
    last = distinct.end - 1
    expected = [(log.partition, distinct.end, 0, last, distinct.end * last // 2) for log in LOGS]
    if sorted(tuple(row) for row in found.collect()) != expected:
        raise SystemExit(f"not every record was written once: {found.collect()}")


def _peak_mib(stack: LocalStack, options: argparse.Namespace, records: int) -> int:
    """The peak memory of the step as its own application, with a new archive, which is deleted afterwards."""
    run = _run(stack.settings, f"records_{records}", options.values)
    archive_day(run, overlapping(records, COPIES))
    log = stack.logs / f"{run.stream.name}.log"
    with log.open("wb") as out:
        program = str(PROJECT / "spark_apps" / "rebuild.py")
        command = [sys.executable, program, "--stream", run.stream.name, "--run", run.name]
        process = psutil.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    peak, code = 0, None
    while code is None:
        peak = max(peak, _resident_bytes(process))
        with suppress(subprocess.TimeoutExpired, psutil.TimeoutExpired):
            code = process.wait(SAMPLE_S)
    if code:
        raise SystemExit(f"the rebuild ended with {code}:\n{log.read_text(encoding='utf-8')}")
    (rows,) = run.require(REBUILD).days
    console.print(f"{records:,} archived records: {rows}, at most {peak / MIB:,.0f} MiB")
    _empty(stack.settings)
    return round(peak / MIB)


def _resident_bytes(process: psutil.Process) -> int:
    """The resident bytes of a process and its descendants."""
    total = 0
    for item in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # it has ended
            total += item.memory_info().rss
    return total


def _empty(settings: Settings) -> None:
    """Remove the archives and the tables' files."""
    store = ObjectStore(settings)
    for kind in ("data/", "warehouse/"):
        for item in list(store.list(kind)):
            store.delete(item.key)


if __name__ == "__main__":
    main()
