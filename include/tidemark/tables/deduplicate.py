"""Duplicates by key: of a day's good rows with equal values in the key's columns one is published.

Event time, record timestamp, topic id, partition and offset decide which one, so the plan, the number of tasks and the
order of rows do not matter. A row with a null in its key is no duplicate. All rows here have the table's columns.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from functools import reduce
from operator import and_, or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tidemark.core.errors import ConfigError
from tidemark.definitions.sections import Deduplicate
from tidemark.tables.columns import DAY
from tidemark.tables.reader import KEPT

PLACE = ("_topic_id", "_kafka_partition", "_offset")
_ORDER = ("_event_time", "_timestamp", *PLACE)
_CHOSEN = "_chosen"  # a transformation's columns can't start with "_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicates:
    """The rows to remove: their number per day, and the place of each and of the row that stays."""

    days: Mapping[date, int]
    _places: DataFrame | None

    def leave_out(self, rows: DataFrame) -> DataFrame:
        """The rows without the duplicates."""
        if self._places is None:
            return rows
        left = rows.join(self._places, on=list(PLACE), how="left_anti")
        return left.select(*(F.col(f"`{name}`") for name in rows.columns))  # a join puts its own columns first

    def pick(self, rows: DataFrame) -> DataFrame | None:
        """Only the duplicates, each with the place of the row that stays; None if there are none."""
        return None if self._places is None else rows.join(self._places, on=list(PLACE), how="inner")


@contextmanager
def find_duplicates(rows: DataFrame | None, wanted: Deduplicate) -> Iterator[Duplicates]:
    """The duplicates among the rows, which need only the columns of ``keyed``. None means no key.

    Spark persists the duplicates, so that it knows their number: it broadcasts a few, and shuffles no whole row.
    """
    if rows is None:
        yield Duplicates(days={}, _places=None)
        return
    ranked = _ranked(rows, wanted).where(~_stays())
    chosen = (F.col(f"{_CHOSEN}.{at}").alias(name) for at, name in zip(PLACE, KEPT, strict=True))
    places = ranked.select(DAY, *PLACE, *chosen).persist()
    try:
        days = {row[DAY]: row["count"] for row in places.groupBy(DAY).count().collect()}
        yield Duplicates(days=days, _places=places.drop(DAY) if days else None)
    finally:
        places.unpersist()


def keyed(rows: DataFrame, wanted: Deduplicate) -> DataFrame:
    """Day, order and key of the rows. Raises ConfigError for a missing column."""
    _require_columns(rows, wanted)
    return rows.select(DAY, *_ORDER, *_columns(wanted))


def distinct(rows: DataFrame, wanted: Deduplicate) -> DataFrame:
    """The rows that stay, in one pass that shuffles all of them. Without a key, all rows."""
    _require_columns(rows, wanted)
    return _ranked(rows, wanted).where(_stays()).drop(_CHOSEN) if wanted.key else rows


def _ranked(rows: DataFrame, wanted: Deduplicate) -> DataFrame:
    """The rows, each with the order of the row that stays."""
    nameless = reduce(or_, (column.isNull() for column in _columns(wanted)))
    # Each row with a null in its key is a group, so that no task gets all of them.
    group = Window.partitionBy(DAY, *_columns(wanted), F.when(nameless, F.struct(*PLACE)))
    best = F.min if wanted.keep == "first" else F.max
    return rows.withColumn(_CHOSEN, best(F.struct(*_ORDER)).over(group))


def _stays() -> Column:
    return reduce(and_, (F.col(name) == F.col(f"{_CHOSEN}.{name}") for name in PLACE))


def _columns(wanted: Deduplicate) -> list[Column]:
    return [F.col(f"`{name}`") for name in wanted.key]


def _require_columns(rows: DataFrame, wanted: Deduplicate) -> None:
    missing = [name for name in wanted.key if name not in rows.columns]
    if missing:
        raise ConfigError(
            "batch.deduplicate.key: not columns of the transformation",
            expected=f"some of: {', '.join(name for name in rows.columns if not name.startswith('_'))}",
            found=", ".join(missing),
        )
