"""One run that stages and publishes numbers, as a reconcile run does with rows."""

from datetime import date
from threading import Barrier

from pyspark.sql import SparkSession
from pyspark.sql.types import DateType, LongType, StructField, StructType

from tidemark.core.errors import ConflictError
from tidemark.settings import Settings
from tidemark.tables.columns import DAY
from tidemark.tables.iceberg import IcebergTable, Publication

SCHEMA = StructType([StructField("n", LongType(), nullable=True), StructField(DAY, DateType(), nullable=True)])
MONDAY, TUESDAY = date(2013, 1, 14), date(2013, 1, 15)


class Writer:
    """One run that has staged numbers for a day, and publishes them."""

    def __init__(self, spark: SparkSession, settings: Settings, table: str, run: str) -> None:
        self.table, self._spark, self.run = IcebergTable(spark, settings, table), spark, run

    def stage(self, day: date, *numbers: int) -> "Writer":
        since = self.table.history()[0]["id"]
        rows = self._spark.createDataFrame([(number, day) for number in numbers], SCHEMA)
        staged = self.table.stage(f"audit_{self.run}", rows, [day], distribution="none")
        assert staged.rows == {day: len(numbers)}
        self._wanted = Publication(
            run=self.run,
            inputs="i",
            branch=f"audit_{self.run}",
            since=since,
            base=staged.base,
            staged=staged.snapshot,
            days=(day,),
            summary={},
            hint="Try again",
        )
        return self

    def publish(self, start: Barrier) -> str:
        start.wait(60)
        try:
            assert not self.table.publish(self._wanted).already
        except ConflictError:
            return "refused"
        return "published"
