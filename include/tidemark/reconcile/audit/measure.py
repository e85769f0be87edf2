"""The figures of a run's days: from the rebuild's result and the files' metadata, and a scan for what these lack."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, NumericType, StructType, VariantType

from tidemark.definitions.own_checks import DISTINCT_VALUES, MEAN, NULL_SHARE
from tidemark.definitions.stream import Stream
from tidemark.reconcile.audit.checks import Expected
from tidemark.reconcile.audit.figures import HOURS, ColumnFigures, DayFigures
from tidemark.reconcile.results import RebuildResult
from tidemark.tables.column_statistics import DayStatistics
from tidemark.tables.columns import DAY

_WITHOUT_DISTINCT = (ArrayType, BinaryType, MapType, StructType, VariantType)
Wanted = Mapping[str, Collection[str]]


def day_figures(
    rows: DataFrame,
    rebuilt: RebuildResult,
    counted: Mapping[date, DayStatistics],
    checks: Sequence[Expected],
    stream: Stream,
) -> tuple[DayFigures, ...]:
    """The figures of each rebuilt day.

    ``counted`` are the statistics of its files, which give the nulls. Distinct values and means are measured in one
    scan, only for the columns that ``checks`` name, as are nulls that the statistics lack.
    """
    profiles = {item.day: item for item in rebuilt.profiles}
    own = {field.name: field.dataType for field in rows.schema.fields if not field.name.startswith("_")}
    no_rows = DayStatistics(rows=0, nulls=dict.fromkeys(own, 0))
    of_files = ((item, counted.get(item.day, no_rows)) for item in rebuilt.days)
    known = {item.day: files.nulls for item, files in of_files if files.rows == item.published}
    wanted = _wanted(checks, own)
    lacking = [name for name in wanted[NULL_SHARE] if any(name not in known.get(item.day, {}) for item in rebuilt.days)]
    measured = _measured(rows, {**wanted, NULL_SHARE: lacking}, own, stream)
    figures = []
    for item in rebuilt.days:
        profile, values, nulls = profiles[item.day], measured.get(item.day, {}), known.get(item.day, {})
        hours = {hour.hour: hour.published for hour in profile.hours}
        columns = tuple(
            ColumnFigures(
                column=name,
                nulls=nulls.get(name, values.get((NULL_SHARE, name))),
                distinct=values.get((DISTINCT_VALUES, name)),
                mean=_finite(values.get((MEAN, name))),
                deviation=_finite(values.get(("deviation", name))),
            )
            for name in own
        )
        figures.append(
            DayFigures(
                day=item.day,
                rows=item.published,
                hours=tuple(hours.get(number, 0) for number in range(HOURS)),
                newest_us=profile.newest_us,
                columns=columns,
            )
        )
    return tuple(figures)


def measurable(expectation: str, kind: DataType, *, personal: bool) -> bool:
    """Whether a column of a type has the figure of a check against earlier days. On a day with one row, a mean is its
    value: so personal columns have none."""
    if expectation == DISTINCT_VALUES:
        return not isinstance(kind, _WITHOUT_DISTINCT)
    return expectation != MEAN or (isinstance(kind, NumericType) and not personal)


def _wanted(checks: Sequence[Expected], own: Collection[str]) -> Wanted:
    """Which columns the checks need each figure of."""
    found: dict[str, list[str]] = {NULL_SHARE: [], DISTINCT_VALUES: [], MEAN: []}
    for item in checks:
        column = str(item.kwargs.get("column"))
        if item.expectation in found and column in own and column not in found[item.expectation]:
            found[item.expectation].append(column)
    return found


def _measured(
    rows: DataFrame, wanted: Wanted, own: Mapping[str, DataType], stream: Stream
) -> Mapping[date, Mapping[tuple[str, str], Any]]:
    """By day, the figures of columns that need a scan. Without such columns there is none."""
    asked = [item for name, columns in wanted.items() for column in columns for item in _of(name, column, own, stream)]
    if not asked:
        return {}
    aggregates = [column.alias(f"figure_{number}") for number, (_, column) in enumerate(asked)]
    found: dict[date, dict[tuple[str, str], Any]] = defaultdict(dict)
    for row in rows.groupBy(DAY).agg(*aggregates).collect():
        if row[DAY] is not None:
            found[row[DAY]] = {key: row[f"figure_{number}"] for number, (key, _) in enumerate(asked)}
    return found


def _of(
    name: str, column: str, own: Mapping[str, DataType], stream: Stream
) -> Iterator[tuple[tuple[str, str], Column]]:
    """The aggregates of one figure of a column; none where the figure makes no sense for its type."""
    values, kind = F.col(f"`{column.replace('`', '``')}`"), own[column]
    if name == NULL_SHARE:
        yield (name, column), F.count_if(values.isNull())
    elif not measurable(name, kind, personal=stream.is_personal(column)):
        return
    elif name == DISTINCT_VALUES:
        yield (name, column), F.approx_count_distinct(values)
    elif name == MEAN:
        yield (name, column), F.avg(values.cast("double"))
        yield ("deviation", column), F.stddev_pop(values.cast("double"))


def _finite(value: float | None) -> float | None:
    """Strict JSON has no NaN and no infinity."""
    return value if value is not None and math.isfinite(value) else None
