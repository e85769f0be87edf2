"""Departures: one row per flight, with its delay class."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(records: DataFrame) -> DataFrame:
    """Flatten the event and name the delay; a cancelled flight (never departed) is a row too."""
    delay = F.col("event.dep_delay_minutes")
    status = (
        F.when(F.col("event.departed_at").isNull(), "cancelled")
        .when(delay > 60, "very late")
        .when(delay > 15, "late")
        .otherwise("on time")
    )
    return records.select(
        "source",
        "event_time",
        "event.carrier",
        "event.flight",
        "event.tailnum",
        "event.origin",
        "event.dest",
        "event.scheduled_at",
        "event.departed_at",
        "event.dep_delay_minutes",
        "event.arr_delay_minutes",
        "event.air_time_minutes",
        "event.distance_miles",
        status.alias("status"),
    )
