"""A run per month of stream ``flights``, once every day of the month is sealed."""

from datetime import timedelta
from typing import Any

from airflow.sdk import (
    DAG,
    MonthWindow,
    PartitionedAssetTimetable,
    RollupMapper,
    StartOfMonthMapper,
    get_current_context,
    task,
)

from tidemark_airflow.assets import day_asset

DAYS = day_asset("flights")
MONTHS = RollupMapper(upstream_mapper=StartOfMonthMapper(input_format="%Y-%m-%d"), window=MonthWindow())

with DAG(
    dag_id="follow_flights_months",
    description="Do something with each complete month of flights",
    schedule=PartitionedAssetTimetable(assets=DAYS, default_partition_mapper=MONTHS),
    max_active_runs=1,
    tags=["example"],
):

    @task(execution_timeout=timedelta(minutes=10))
    def use_month() -> dict[str, Any]:
        """Replace what your own table has of the month."""
        context = get_current_context()
        versions: dict[str, int] = {}
        for event in context["triggering_asset_events"].get(DAYS, ()):  # a run by hand has none
            day = event.partition_key
            versions[day] = max(event.extra["days"][day], versions.get(day, 0))
        return {"month": context["dag_run"].partition_key, "versions": versions}

    use_month()
