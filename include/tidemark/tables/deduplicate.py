"""Duplicates by key: of a day's good rows with the same values of some columns one is published, the rest set aside.

Which one stays follows from a total order of the rows themselves: event time, record timestamp, topic id, partition,
offset. So it is the same whatever the plan, the number of tasks or the order in which rows come. A row with a null in
its key is no duplicate of anything. The functions take rows in table form, as ``identity`` and the stream's columns.
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
_CHOSEN = "_chosen"  # a name that no transformation may use


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicates:
    """The rows to remove: per day how many, and of each its place and that of the row that stays."""

    days: Mapping[date, int]
    _places: DataFrame | None

    def leave_out(self, rows: DataFrame) -> DataFrame:
        """The rows without the duplicates; no join is added where there are none."""
        if self._places is None:
            return rows
        left = rows.join(self._places, on=list(PLACE), how="left_anti")
        return left.select(*(F.col(f"`{name}`") for name in rows.columns))  # a join puts its own columns first

    def pick(self, rows: DataFrame) -> DataFrame | None:
        """Only the duplicates among the rows, with the place of the row that stays; None where there are none."""
        return None if self._places is None else rows.join(self._places, on=list(PLACE), how="inner")


@contextmanager
def find_duplicates(rows: DataFrame | None, wanted: Deduplicate) -> Iterator[Duplicates]:
    """The duplicates among the rows, which need no other columns than ``keyed`` gives; None is no key at all.

    Only those columns are shuffled. What is found is kept by Spark meanwhile, so that it knows its size: few of them
    are sent to every task, and no whole row is shuffled then.
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
    """Day, order and key of the rows. Raises ConfigError for a column that is not there."""
    _require_columns(rows, wanted)
    return rows.select(DAY, *_ORDER, *_columns(wanted))


def distinct(rows: DataFrame, wanted: Deduplicate) -> DataFrame:
    """The rows that stay, in one pass that shuffles all of them; as they are without a key."""
    _require_columns(rows, wanted)
    return _ranked(rows, wanted).where(_stays()).drop(_CHOSEN) if wanted.key else rows


def _ranked(rows: DataFrame, wanted: Deduplicate) -> DataFrame:
    """With the order of the row that stays for each, its own for one that does."""
    nameless = reduce(or_, (column.isNull() for column in _columns(wanted)))
    # A group of its own for each row without a whole key: no task gets all of them.
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
