"""Addresses of the pages, for notifications, notes and links in Airflow. They open inside Airflow's own frame."""

from datetime import date
from urllib.parse import quote, urlsplit

# Below Airflow's base URL.
PREFIX = "tidemark"
# Airflow shows the page ``<path>`` at ``plugin/<route>/<path>``, with its navigation around it.
ROUTE = "tidemark"


def streams_url() -> str:
    """The page of all streams."""
    return _framed("")


def stream_url(stream: str) -> str:
    """A stream's page."""
    return _framed(f"streams/{quote(stream, safe='')}")


def day_url(stream: str, day: date) -> str:
    """The page of a stream's day."""
    return _framed(f"streams/{quote(stream, safe='')}/days/{day.isoformat()}")


def report_url(stream: str, run: str) -> str:
    """A run's report alone, without Airflow's frame."""
    return f"{base_url()}{PREFIX}/streams/{quote(stream, safe='')}/runs/{quote(run, safe='')}/report.html"


def base_url() -> str:
    """Airflow's ``[api] base_url`` with a slash at its end: ``/`` if the deployment does not say it."""
    from airflow.sdk.configuration import conf

    found = str(conf.get("api", "base_url", fallback="") or "")
    return found if found.endswith("/") else f"{found}/"


def _framed(page: str) -> str:
    base = base_url()
    return f"{base}plugin/{ROUTE}{urlsplit(base).path}{PREFIX}/{page}"
