"""Step ``delivery`` of a run, in Spark: the live topic compared with the archive, for the days that the run sealed."""

from pyspark.sql import SparkSession

from tidemark.core.days import day_end, day_start
from tidemark.delivery_audit.audit import audit_delivery
from tidemark.delivery_audit.span import TimeSpan
from tidemark.orchestration.compared_days import compared_days, nothing_to_compare, unreadable_days
from tidemark.run import Run


def delivery_run(run: Run, spark: SparkSession) -> None:
    """Compare the days that the live topic still holds."""
    if nothing_to_compare(run) is not None:
        return
    unreadable = unreadable_days(run)
    days = sorted(set(compared_days(run)) - {item.day for item in unreadable})
    zone = run.stream.zone
    span = TimeSpan(start=day_start(days[0], zone), end=day_end(days[-1], zone))
    audit_delivery(run, spark, span, unreadable=unreadable)
