"""The assets that announce a stream's sealed days, and their events."""

from typing import Any

from airflow.sdk import Asset, AssetAlias, BaseOperator


def sealed_asset(stream_name: str) -> Asset:
    """What downstream DAGs schedule on to follow a stream's runs; an event's extra names days and versions."""
    return _asset(stream_name, "sealed")


def day_asset(stream_name: str) -> Asset:
    """The partitioned asset of a stream: an event per sealed version of a day, whose partition key is the day.

    Only DAGs with a ``PartitionedAssetTimetable`` follow it.
    """
    return _asset(stream_name, "day")


def announce(task: BaseOperator, stream_name: str, context: Any, result: dict[str, Any]) -> None:
    """Events of the stream's assets. An alias stands for the stream's ``sealed_asset``.

    ``result["days"]`` are the versions by day. All events have the whole result in their extra.
    """
    extra = {"stream": stream_name, "run": context["run_id"], **result}
    events, day = context["outlet_events"], day_asset(stream_name)
    # For an outlet without partitions, Airflow would make an event of no day. An alias can't have partitions.
    task.outlets = [outlet for outlet in task.outlets if outlet != day]
    for outlet in task.outlets:
        if isinstance(outlet, AssetAlias):
            events[outlet].add(sealed_asset(stream_name), extra=extra)
        else:
            events[outlet].extra = extra
    if result["days"]:
        task.outlets = [*task.outlets, day]
        events[day].extra = extra
        events[day].add_partitions(list(result["days"]))


def _asset(stream_name: str, what: str) -> Asset:
    return Asset(name=f"{stream_name}_{what}", uri=f"tidemark://streams/{stream_name}/{what}", group="tidemark")
