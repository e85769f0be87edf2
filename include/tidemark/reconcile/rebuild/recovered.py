"""Rejected records of the versions before that a rebuild publishes: what a mended transformation has recovered.

Places are compared, so that it does not matter what the transformation makes of a record. Only days whose version
before has rejected records are compared, and only groups leave Spark: the most frequent reasons of each day.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import date
from functools import partial

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from tidemark.core.seal import Seal
from tidemark.reconcile.day_profile import REASONS_MAX, RecoveredReason, RecoveredRows
from tidemark.reconcile.rebuild.profile import REASON_CHARACTERS
from tidemark.reconcile.rebuild.version_diff import earlier_seals, earlier_snapshots, warn_unread
from tidemark.run import Run
from tidemark.spark.failures import cause_line
from tidemark.tables.columns import DAY, branch_name
from tidemark.tables.deduplicate import PLACE
from tidemark.tables.iceberg import IcebergTable
from tidemark.tables.reader import load_table
from tidemark.tables.snapshots import quarantined_at


def recovered_rows(run: Run, spark: SparkSession, versions: Mapping[date, int]) -> tuple[RecoveredRows, ...]:
    """The recovered rows of the days whose version before had rejected records.

    ``versions`` has the days on the run's branch. A day is left out, with a warning, if the earlier quarantine has
    expired or can't be read.
    """
    earlier = {day: seal for day, seal in earlier_seals(run, versions).items() if seal.rows_quarantined}
    if not earlier:
        return ()
    quarantine = IcebergTable(spark, run.settings, run.stream.quarantine_table)
    loaded = load_table(run.settings, run.stream.quarantine_table)
    now = IcebergTable(spark, run.settings, run.stream.table).read(branch_name(run.name))
    found: list[RecoveredRows] = []
    for snapshot, days in earlier_snapshots(earlier, partial(quarantined_at, loaded)).items():
        try:
            rows = recovered(quarantine.read_at(snapshot), now, days)
        except (PySparkException, Py4JJavaError) as error:
            for day in days:
                warn_unread(day, cause_line(str(error)))
        else:
            found += (_day(day, earlier[day], rows.get(day, ())) for day in days)
    return tuple(sorted(found, key=lambda item: item.day))


def recovered(quarantine: DataFrame, published: DataFrame, days: Sequence[date]) -> dict[date, list[Row]]:
    """Per day with recovered rows the most frequent reasons with their ``count``, and all ``rows`` and ``reasons``."""
    rejected = quarantine.where(F.col(DAY).isin(list(days)) & F.col("kept_offset").isNull())
    reason = F.substring("reason", 1, REASON_CHARACTERS).alias("reason")
    places = published.where(F.col(DAY).isin(list(days))).select(DAY, *PLACE)
    counted = (
        rejected.select(DAY, *PLACE, reason)
        .join(places, on=[DAY, *PLACE], how="left_semi")
        .groupBy(DAY, "reason")
        .count()
    )
    of_day = Window.partitionBy(DAY)
    rank = F.row_number().over(of_day.orderBy(F.desc("count"), "reason")).alias("rank")
    totals = (F.sum("count").over(of_day).alias("rows"), F.count("*").over(of_day).alias("reasons"))
    found: dict[date, list[Row]] = defaultdict(list)
    for row in counted.select("*", *totals, rank).where(F.col("rank") <= REASONS_MAX).orderBy(DAY, "rank").collect():
        found[row[DAY]].append(row)
    return found


def _day(day: date, earlier: Seal, reasons: Sequence[Row]) -> RecoveredRows:
    return RecoveredRows(
        day=day,
        version=earlier.version,
        rejected=earlier.rows_quarantined,
        rows=reasons[0]["rows"] if reasons else 0,
        reasons=tuple(RecoveredReason(reason=row["reason"], rows=row["count"]) for row in reasons),
        reasons_found=reasons[0]["reasons"] if reasons else 0,
    )
