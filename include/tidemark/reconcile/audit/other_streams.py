"""Checks of a day against the same day of another stream, as it is sealed."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.core.errors import FormatError
from tidemark.core.layout import Layout
from tidemark.core.seal import Seal
from tidemark.definitions.own_checks import ROW_COUNT_OF_STREAM, with_defaults
from tidemark.reconcile.audit.checks import CheckOutcome, Expected, masked
from tidemark.reconcile.audit.expectations import evaluate
from tidemark.reconcile.results import DayCounts
from tidemark.run import Run
from tidemark.tables.columns import DAY
from tidemark.tables.iceberg import IcebergTable
from tidemark.tables.reader import load_table
from tidemark.tables.seals import day_seals
from tidemark.tables.snapshots import published_at


def against_streams(
    run: Run, spark: SparkSession, rows: DataFrame, checks: Sequence[Expected], counts: DayCounts
) -> list[CheckOutcome]:
    """The outcomes of a day's checks against other streams.

    Without that stream's sealed day a check can't be made, which says nothing of the rows: a later audit may make it.
    """
    outcomes = []
    sealed = {name: _sealed(run, name, counts.day) for name in {item.kwargs["stream"] for item in checks}}
    for item in checks:
        other = sealed[item.kwargs["stream"]]
        if isinstance(other, str):
            found = CheckOutcome(expected=item, success=None, observed=None, exception=other)
        elif item.expectation == ROW_COUNT_OF_STREAM:
            found = row_count(item, counts.published, other)
        elif not counts.read:
            found = CheckOutcome(expected=item, success=True, observed="no row to check")
        else:
            found = _values(run, spark, rows.where(F.col(DAY) == counts.day), item, other)
        outcomes.append(replace(found, day=counts.day))
    return outcomes


def _sealed(run: Run, stream: str, day: date) -> Seal | str:
    """The latest seal of another stream's day, or why there is none to compare with."""
    seals = day_seals(run.store, Layout(prefix=run.settings.prefix, stream=stream), day)
    if not seals:
        return f"stream {stream} has not sealed {day}"
    zone = seals[-1].time_zone
    if zone != run.stream.time_zone:
        return f"stream {stream} has days of {zone}, not of {run.stream.time_zone}"
    return seals[-1]


def row_count(expected: Expected, rows: int, other: Seal) -> CheckOutcome:
    """Whether a day has as many rows as another stream's, but for the allowed deviation."""
    deviation = with_defaults(expected.expectation, expected.kwargs)["deviation"]
    allowed = f" ± {100 * deviation:g} %" if deviation else ""
    return CheckOutcome(
        expected=expected,
        success=abs(rows - other.rows_published) <= deviation * other.rows_published,
        observed=f"rows: {rows:,}, expected {other.rows_published:,}{allowed}, as version {other.version} of"
        f" {other.stream} has",
    )


def _values(run: Run, spark: SparkSession, rows: DataFrame, expected: Expected, other: Seal) -> CheckOutcome:
    """Whether the values of a column exist in the sealed rows of the other stream's day."""
    kwargs = with_defaults(expected.expectation, expected.kwargs)
    try:
        snapshot = published_at(load_table(run.settings, other.stream), other)
    except FormatError as error:
        return CheckOutcome(expected=expected, success=None, observed=None, exception=str(error))
    if snapshot is None:
        expired = f"the rows of version {other.version} of {other.stream} have expired"
        return CheckOutcome(expected=expected, success=None, observed=None, exception=expired)
    view = f"tidemark_{other.stream}_{other.day:%Y%m%d}"
    sealed = IcebergTable(spark, run.settings, other.stream).read_at(snapshot)
    sealed.where(F.col(DAY) == other.day).createOrReplaceTempView(view)
    try:
        in_view = {
            "column": kwargs["column"],
            "other_table": view,
            "other_column": kwargs["stream_column"],
            "mostly": kwargs["mostly"],
        }
        library = replace(expected, expectation="expect_column_values_to_exist_in_other_table", kwargs=in_view)
        (found,) = evaluate(rows, [library])
    finally:
        spark.catalog.dropTempView(view)
    return masked(replace(found, expected=expected), run.stream)
