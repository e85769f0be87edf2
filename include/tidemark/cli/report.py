"""``tidemark report``: the verdict of the last reconcile run, and where its report is."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rich.console import Console

from tidemark.cli.connect import connect_s3
from tidemark.cli.output import open_console, plain
from tidemark.core.errors import ConfigError, RequestError
from tidemark.core.layout import Layout
from tidemark.definitions.stream import stream_names
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings

COLOURS = {"failed": "red", "complete": "green", "unchanged": "green"}


def print_last_report(stack: str | None, stream: str | None) -> None:
    """Print the newest report's verdict and location. Raises RequestError if there is none."""
    settings = connect_s3(stack)
    store = ObjectStore(settings)
    names = stream_names(settings.streams_dir)
    if stream is not None and stream not in names:
        raise ConfigError("no such stream", expected=f"one of: {', '.join(names) or 'none'}", found=stream)
    console = open_console()
    with console.status("reading reports"):
        reports = [
            report for name in ([stream] if stream else names) for report in _reports(store, settings, name) if report
        ]
    if not reports:
        raise RequestError("no report yet", where=stream or str(settings.streams_dir), hint="Start a reconcile run")
    print_report(console, settings, max(reports, key=lambda report: str(report["generated_at"])))


def print_report(console: Console, settings: Settings, report: Mapping[str, Any]) -> None:
    """Print a run's verdict, and where its page is."""
    verdict = report["verdict"]
    console.print(plain(verdict["title"], style=COLOURS.get(verdict["status"], "yellow")))
    for sentence in verdict["sentences"]:
        console.print(plain(sentence))
    console.print(plain(f"Run {report['run']} of stream {report['stream']}, {report['generated_at']}"))
    console.print(plain(str(_local_path(settings, report["html_key"]) or report["html_url"])))


def _reports(store: ObjectStore, settings: Settings, stream: str) -> list[dict[str, Any]]:
    prefix = Layout(prefix=settings.prefix, stream=stream).run_prefix
    bodies = (store.get(item.key) for item in store.list(prefix) if item.key.endswith("/report.json"))
    values = (json.loads(body) for body in bodies if body is not None)
    return [value["result"] for value in values if value.get("status") == "ok"]


def _local_path(settings: Settings, key: str) -> Path | None:
    """The report as a file that a browser can open, if the S3 server is a local stack's."""
    if urlsplit(settings.s3_endpoint or "").hostname != "127.0.0.1":
        return None
    folder = Path(settings.catalog_uri.removeprefix("jdbc:sqlite:")).parent
    path = folder / "s3" / "data" / settings.bucket / key
    return path if path.exists() else None
