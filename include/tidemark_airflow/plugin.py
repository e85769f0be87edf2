"""The plugin: the pages, and what templates of other DAGs can call."""

from collections.abc import Iterable, Mapping
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from tidemark_airflow import notes
from tidemark_airflow.pages.links import PREFIX, ROUTE
from tidemark_airflow.pages.mount import MountedPages
from tidemark_airflow.priority import ScheduledFirst


def sealed_days(events: Mapping[Any, Iterable[Any]], stream: str | None = None) -> list[str]:
    """The days in the asset events that triggered a run, in order, such as ``2013-01-14``; of one stream, if named.

    In a template: ``{{ macros.tidemark.sealed_days(triggering_asset_events) }}``.
    """
    extras = [event.extra for found in events.values() for event in found]
    return sorted({day for extra in extras if stream in (None, extra.get("stream")) for day in extra.get("days", {})})


def _view(name: str, path: str, destination: str, route: str) -> dict[str, Any]:
    """A page inside Airflow. Its address is relative: Airflow may be below a path."""
    icons = {"icon": f"{PREFIX}/static/icon.svg", "icon_dark_mode": f"{PREFIX}/static/icon-dark.svg"}
    return {"name": name, "href": f"{PREFIX}/{path}", "destination": destination, "url_route": route, **icons}


class TidemarkPlugin(AirflowPlugin):
    """``macros.tidemark``, the notes of runs, the pages with their entry and tabs (of DAGs, runs and tasks), a card on
    the home page, and the priority of scheduled runs.

    Airflow shows a tab on every DAG or on none; where the DAG reconciles no stream, the tab says so.
    """

    name = "tidemark"
    macros = [sealed_days]  # noqa: RUF012 - as the base class has it
    listeners = [notes]  # noqa: RUF012
    priority_weight_strategies = [ScheduledFirst]  # noqa: RUF012
    fastapi_apps = [{"name": "Tidemark", "url_prefix": f"/{PREFIX}", "app": MountedPages()}]  # noqa: RUF012
    external_views = [  # noqa: RUF012
        {**_view("Streams", "", "nav", ROUTE), "nav_top_level": True},
        _view("Tidemark", "dags/{DAG_ID}", "dag", "tidemark-dag"),
        _view("Tidemark", "dags/{DAG_ID}/runs/{RUN_ID}", "dag_run", "tidemark-run"),
        _view("Tidemark", "dags/{DAG_ID}/runs/{RUN_ID}", "task_instance", "tidemark-task"),
    ]
    react_apps = [  # noqa: RUF012
        {
            "name": "TidemarkCard",
            "bundle_url": f"{PREFIX}/static/card.js",
            "destination": "dashboard",
            "url_route": "tidemark-card",
        }
    ]
