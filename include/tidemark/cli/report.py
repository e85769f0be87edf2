"""A run's verdict and the place of its report, as commands print them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rich.console import Console

from tidemark.cli.output import plain
from tidemark.settings import Settings

COLOURS = {"failed": "red", "complete": "green", "unchanged": "green"}


def print_report(console: Console, settings: Settings, report: Mapping[str, Any]) -> None:
    """Print a run's verdict, and where its page is."""
    verdict = report["verdict"]
    console.print(plain(verdict["title"], style=COLOURS.get(verdict["status"], "yellow")))
    for sentence in verdict["sentences"]:
        console.print(plain(sentence))
    ended = f", ended {report['ended_at']}" if report["ended_at"] else ""
    console.print(plain(f"Run {report['run']} of stream {report['stream']}{ended}"))
    console.print(plain(report_place(settings, report["html_key"])))


def report_place(settings: Settings, key: str) -> str:
    """The report as a file that a browser can open, if the S3 server is a local stack's; else its URL in S3."""
    url = f"s3://{settings.bucket}/{key}"
    if urlsplit(settings.s3_endpoint or "").hostname != "127.0.0.1":
        return url
    folder = Path(settings.catalog_uri.removeprefix("jdbc:sqlite:")).parent
    path = folder / "s3" / "data" / settings.bucket / key
    return str(path) if path.exists() else url
