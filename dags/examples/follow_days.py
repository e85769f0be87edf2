"""A run per sealed day of stream ``flights``, and another one when a day is sealed again."""

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, PartitionedAssetTimetable, get_current_context, task

from tidemark_airflow.assets import day_asset

DAYS = day_asset("flights")

with DAG(
    dag_id="follow_flights_days",
    description="Do something with each sealed day of flights",
    schedule=PartitionedAssetTimetable(assets=DAYS),
    max_active_runs=1,
    tags=["example"],
):

    @task(execution_timeout=timedelta(minutes=10))
    def use_day() -> dict[str, Any]:
        """Replace what your own table has of the day: the day may come again, with a higher version."""
        context = get_current_context()
        day = context["dag_run"].partition_key
        events = context["triggering_asset_events"][DAYS]
        sealed = max((event.extra for event in events), key=lambda extra: extra["days"][day])
        return {"day": day, "version": sealed["days"][day], "quality": sealed["quality"][day]}

    use_day()
