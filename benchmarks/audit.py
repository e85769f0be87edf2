"""Compares the audit of a day with its rebuild, with as many checks of the same kinds as the demo's stream has.

The archive has one day in 4 partitions, without second copies. Both steps run in one Spark session, as often as asked,
the audit after each rebuild. The start of Spark and of Great Expectations is in the warm-up run only. The last line is
JSON: median seconds of the audit ÷ those of the rebuild.
"""

import argparse
import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml
from rich.table import Table

from benchmarks.common import VALUE_BYTES, VALUE_SCHEMA, Times, console
from benchmarks.overlapping import LOGS, archive_day
from benchmarks.rebuild import RUN, TRANSFORM, clear
from tidemark.core.offsets import OffsetRange
from tidemark.reconcile.audit.step import audit_run
from tidemark.reconcile.rebuild.step import rebuild_run
from tidemark.reconcile.results import AUDIT
from tidemark.run import Run
from tidemark.settings import Settings
from tidemark.spark.java import jvm
from tidemark.spark.session import spark_session
from tidemark.stack.local import LocalStack
from tidemark.tables.columns import branch_name
from tidemark.tables.iceberg import IcebergTable

NAME = "audited"
CHECKS = (
    {"expectation": "expect_column_values_to_not_be_null", "kwargs": {"column": "ride"}},
    {"expectation": "expect_column_values_to_be_in_set", "kwargs": {"column": "currency", "value_set": ["EUR"]}},
    {"expectation": "expect_column_values_to_be_between", "kwargs": {"column": "fare", "min_value": 0}},
    {
        "expectation": "expect_column_values_to_not_be_null",
        "kwargs": {"column": "note", "mostly": 0.9},
        "severity": "warning",
    },
)


def main() -> None:
    """Run the benchmark; see ``--help``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--records", type=int, default=5_000_000, help=f"archived, {VALUE_BYTES} bytes each (5,000,000)"
    )
    parser.add_argument("--runs", type=int, default=3, help="of both steps, after a warm-up run (3)")
    parser.add_argument("--profile", action="store_true", help="with the checks of profile: default, too")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="tidemark-bench-") as folder:
        streams = Path(folder) / "streams"
        streams.mkdir()
        with LocalStack("bench-audit", root=Path(folder), streams_dir=streams, fresh=True) as stack:
            os.environ.update(stack.env)
            times = _times(stack.settings, options)
    table = Table("", title=f"{options.records:,} archived records, {len(CHECKS)} checks of the stream")
    for column in Times.COLUMNS:
        table.add_column(column, justify="right")
    for name, found in times.items():
        table.add_row(name, *found.cells(options.records))
    console.print(table)
    ratio = times["audit"].median / times["rebuild"].median
    console.print(json.dumps({"ratio_audit": round(ratio, 3)}), soft_wrap=True, highlight=False)


def _times(settings: Settings, options: argparse.Namespace) -> dict[str, Times]:
    definition = {
        "name": NAME,
        "topic": LOGS[0].topic,
        "value_schema": VALUE_SCHEMA,
        "speed": {"topic": f"{NAME}.live", "dead_letter_topic": f"{NAME}.dead-letter"},
        "batch": {"checks": [*CHECKS], **({"profile": "default"} if options.profile else {})},
    }
    (settings.streams_dir / f"{NAME}.yaml").write_text(yaml.safe_dump(definition), encoding="utf-8")
    (settings.streams_dir / f"{NAME}.py").write_text(TRANSFORM, encoding="utf-8")
    run = Run.open(NAME, RUN, settings)
    archive_day(run, [OffsetRange(start=0, end=options.records // len(LOGS))])
    spark = spark_session(settings, "bench-audit")
    table = IcebergTable(spark, settings, run.stream.table)
    times = {"rebuild": Times(), "audit": Times()}
    try:
        for number in range(options.runs + 1):
            jvm(spark).java.lang.System.gc()
            with times["rebuild"].of("rebuild", number):
                rebuild_run(run, spark)
            with times["audit"].of("audit", number):
                audit_run(run, spark)
            failed = [item for item in run.require(AUDIT).checks if item.success is False]
            if failed:
                raise SystemExit(f"expected no failed check, found {failed}")
            clear(table, spark, branch_name(run.name))
    finally:
        spark.stop()
    return times


if __name__ == "__main__":
    main()
