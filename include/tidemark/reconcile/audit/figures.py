"""Figures of a day's published rows, as plain values. No Spark here: they are compared with those of earlier days."""

from dataclasses import dataclass
from datetime import date

HOURS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFigures:
    """A column's values: nulls, about how many distinct ones, and of a number its mean and standard deviation.

    None where a figure was not measured because no check needs it, makes no sense for the column's type, or has no
    value to be made of.
    """

    column: str
    nulls: int | None
    distinct: int | None
    mean: float | None
    deviation: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DayFigures:
    """A day's rows: how many in all and in each of the 24 hours of the stream's clock, and its columns.

    ``newest_us``: the newest event time, in µs since the epoch. None on a day without rows.
    """

    day: date
    rows: int
    hours: tuple[int, ...]
    newest_us: int | None
    columns: tuple[ColumnFigures, ...]

    def column(self, name: str) -> ColumnFigures | None:
        """The figures of a column; None if the day's rows did not have it."""
        return next((item for item in self.columns if item.column == name), None)
