"""Expectations of rows: conserved, unique by a key, and with values that another table has."""

from collections.abc import Sequence
from datetime import date
from typing import Any, ClassVar

from great_expectations.compatibility import pydantic

from tidemark.expectations.query import SparkQueryExpectation, name


class ExpectKeyToBeUnique(SparkQueryExpectation):
    """No two rows have the same values in all ``columns``. A row with a null among them is not judged."""

    columns: Sequence[str]

    sentence: ClassVar[str] = "No two rows have the same key."
    success_keys: ClassVar[tuple[str, ...]] = ("columns",)

    def unexpected(self) -> str:
        key = ", ".join(map(name, self.columns))
        whole = " AND ".join(f"{name(column)} IS NOT NULL" for column in self.columns)
        return f"SELECT {key}, count(*) AS copies FROM {{batch}} WHERE {whole} GROUP BY {key} HAVING count(*) > 1"  # noqa: S608


class ExpectRowsToBeConserved(SparkQueryExpectation):
    """Each day has the rows that were read less those quarantined and removed, and no row is of another day or none.

    ``days``: day, in ISO form → ``read``, and where not 0 ``quarantined`` and ``removed``.
    """

    days: dict[str, dict[str, int]]
    day_column: str = "_day"

    sentence: ClassVar[str] = "Each day has the rows that were read, less those quarantined and removed."
    success_keys: ClassVar[tuple[str, ...]] = ("days", "day_column")

    @pydantic.validator("days")
    def _days_are_days(cls, value: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:  # noqa: N805 - as pydantic has it
        for day, rows in value.items():
            date.fromisoformat(day)
            if "read" not in rows or rows.keys() - {"read", "quarantined", "removed"}:
                raise ValueError(f"{day}: expected read, quarantined and removed, found {', '.join(rows) or 'nothing'}")
        if not value:
            raise ValueError("expected at least one day, found none")
        return value

    def unexpected(self) -> str:
        day = name(self.day_column)
        values = ", ".join(
            f"(DATE'{item}', {rows['read'] - rows.get('quarantined', 0) - rows.get('removed', 0)}L)"
            for item, rows in self.days.items()
        )
        counted = f"SELECT {day} AS day, count(*) AS found FROM {{batch}} GROUP BY {day}"  # noqa: S608
        return (
            "SELECT coalesce(e.day, f.day) AS day, coalesce(e.expected, 0) AS expected, coalesce(f.found, 0) AS found"  # noqa: S608
            f" FROM VALUES {values} AS e(day, expected)"
            f" FULL OUTER JOIN ({counted}) f ON e.day = f.day"
            " WHERE coalesce(e.expected, 0) <> coalesce(f.found, 0)"
        )


class ExpectColumnValuesToExistInOtherTable(SparkQueryExpectation):
    """Each value of ``column`` is one of ``other_column`` in ``other_table``, a table or view of the Spark session.

    Nulls are not judged. ``mostly`` is the share of values that must exist there.
    """

    column: str
    other_table: str
    other_column: str
    mostly: pydantic.confloat(ge=0, le=1) = 1.0  # type: ignore[valid-type]  # as pydantic has it

    sentence: ClassVar[str] = "Each value exists in the other table."
    success_keys: ClassVar[tuple[str, ...]] = ("column", "other_table", "other_column", "mostly")

    def unexpected(self) -> str:
        column = f"b.{name(self.column)}"
        return (
            f"SELECT {column} AS value, count(*) AS rows FROM {self._joined()}"  # noqa: S608
            f" WHERE {column} IS NOT NULL AND o.value IS NULL GROUP BY {column}"
        )

    def counts(self) -> str:
        column = f"b.{name(self.column)}"
        return (
            f"SELECT count(*) AS element_count, count_if({column} IS NULL) AS missing_count,"  # noqa: S608
            f" count_if({column} IS NOT NULL AND o.value IS NULL) AS unexpected_count FROM {self._joined()}"
        )

    def _joined(self) -> str:
        table = ".".join(map(name, self.other_table.split(".")))
        other = f"(SELECT DISTINCT {name(self.other_column)} AS value FROM {table})"  # noqa: S608
        return f"{{batch}} b LEFT JOIN {other} o ON b.{name(self.column)} = o.value"

    def succeeds(self, counts: dict[str, Any]) -> bool:
        judged = counts["element_count"] - counts["missing_count"]
        return bool(judged - counts["unexpected_count"] >= self.mostly * judged)

    def result(self, counts: dict[str, Any]) -> dict[str, Any]:
        judged = counts["element_count"] - counts["missing_count"]
        return {**counts, "unexpected_percent": 100 * counts["unexpected_count"] / judged if judged else None}
