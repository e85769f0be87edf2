"""The files below deploy/monitoring, and the names that metrics have in Prometheus."""

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from tidemark.core.instruments import (
    STEP_ATTRIBUTES,
    STEP_INSTRUMENTS,
    STREAM_ATTRIBUTES,
    STREAM_INSTRUMENTS,
    Instrument,
)
from tidemark.inspect.status_metrics import STATUS_METRICS
from tidemark.installation import PROJECT

FOLDER = PROJECT / "deploy" / "monitoring"
RUNBOOKS = PROJECT / "docs" / "runbooks"
# What Grafana puts in place of the dashboard's variables.
VARIABLES = {"$__rate_interval": "5m", "$__interval": "1m", "$deployment": ".*", "$stream": ".*"}


def rules() -> list[dict[str, Any]]:
    """Every alert rule."""
    groups = yaml.safe_load((FOLDER / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
    return found


def panels() -> Iterator[dict[str, Any]]:
    """Every panel that shows something."""
    yield from (panel for panel in dashboard()["panels"] if panel["type"] != "row")


def queries() -> list[tuple[str, str]]:
    """Title and query of every panel's every target, with values for the variables."""
    found = []
    for panel in panels():
        for target in panel["targets"]:
            text = target["expr"]
            for name, value in VARIABLES.items():
                text = text.replace(name, value)
            found.append((panel["title"], text))
    return found


def in_prometheus(item: Instrument) -> set[str]:
    """The names of a metric in Prometheus, as its OTLP receiver makes them."""
    unit = {"By": "bytes", "s": "seconds"}.get(item.unit)
    name = "_".join(filter(None, (item.name.replace(".", "_"), unit)))
    if item.kind == "histogram":
        return {f"{name}_{part}" for part in ("bucket", "count", "sum")}
    return {f"{name}_total" if item.kind == "counter" else name}


def known_metrics() -> list[set[str]]:
    """For each metric that Tidemark exports, its names in Prometheus."""
    pushed = [in_prometheus(item) for item in (*STREAM_INSTRUMENTS, *STEP_INSTRUMENTS)]
    return pushed + [{item.name} for item in STATUS_METRICS]


def metrics_in(text: str) -> set[str]:
    """The metrics that queries name."""
    attributes = {name.replace(".", "_") for name in (*STREAM_ATTRIBUTES, *STEP_ATTRIBUTES)}
    labels = attributes | {name for item in STATUS_METRICS for name in item.labels}
    return set(re.findall(r"\btidemark_\w+", text)) - labels
