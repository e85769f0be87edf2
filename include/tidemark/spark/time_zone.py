"""Requires that Java and Python count a stream's days alike."""

import zoneinfo
from datetime import UTC, datetime
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from pyspark.sql import SparkSession

from tidemark.core.zone_rules import ZoneRules, compared_time, require_same_rules, zone_offsets
from tidemark.definitions.stream import Stream
from tidemark.spark.java import java_zone

_JAVA_UPDATE = "install a newer release of Java, or run its vendor's time-zone updater"
_checked: set[tuple[str, str]] = set()  # application and time zone


def require_same_clocks(spark: SparkSession, stream: Stream) -> None:
    """Compare Java's and Python's time-zone data for the stream's zone, once in a session.

    Raises ConfigError, with both versions, where they differ within the last year or the next two.
    """
    key = spark.sparkContext.applicationId, stream.time_zone
    if key in _checked:
        return
    start, end = compared_time(datetime.now(UTC))
    release, version, offsets = java_zone(spark, stream.time_zone, int(start.timestamp()), int(end.timestamp()))
    java = ZoneRules(program=f"Java {release}", version=version, offsets=offsets, update=_JAVA_UPDATE)
    folder, update = _source(stream.time_zone)
    python = ZoneRules(
        program="Python",
        version=_version(folder),
        offsets=zone_offsets(stream.zone, start, end),
        update=update,
    )
    require_same_rules(stream.time_zone, python, java)
    _checked.add(key)


def _source(zone: str) -> tuple[Traversable, str]:
    """Where Python finds the zone, and how to update it there: in the operating system, or else in a package."""
    for folder in map(Path, zoneinfo.TZPATH):
        if (folder / zone).is_file():
            return folder, f"install a newer package tzdata of the operating system ({folder})"
    return resources.files("tzdata") / "zoneinfo", "install a newer version of Python's package tzdata"


def _version(folder: Traversable) -> str | None:
    """The data's version, from the first line of its source, for example ``# version 2025b``."""
    file = folder / "tzdata.zi"
    if not file.is_file():
        return None
    with file.open(encoding="utf-8") as lines:
        return str(lines.readline()).removeprefix("# version").strip() or None
