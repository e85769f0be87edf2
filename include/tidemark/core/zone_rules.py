"""Compares what two programs know of a time zone: Java computes the days of rows, and Python those of a run.

Each has time-zone data of its own, of a version of its own. Governments change the clocks at short notice.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import zip_longest

from tidemark.core.days import constant_offsets
from tidemark.core.errors import ConfigError

_BACK, _AHEAD = timedelta(days=366), timedelta(days=2 * 366)
Offsets = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneRules:
    """One program's rules of a time zone, in the compared time.

    ``version`` is that of its data, such as 2025b; None if the data does not say. ``offsets`` are pairs in order: from
    which second since the epoch on which offset in seconds holds. They are empty if the program does not know the zone.
    ``update`` says how to get newer data.
    """

    program: str
    version: str | None
    offsets: Offsets
    update: str


def compared_time(now: datetime) -> tuple[datetime, datetime]:
    """A year back, because days of that time are rebuilt, and two years ahead, because a stream runs that long."""
    hour = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    return hour - _BACK, hour + _AHEAD


def zone_offsets(zone: tzinfo, start: datetime, end: datetime) -> Offsets:
    """``ZoneRules.offsets`` of a zone of Python's."""
    return tuple(
        (int(first.timestamp()), int(offset.total_seconds())) for first, _, offset in constant_offsets(start, end, zone)
    )


def require_same_rules(zone: str, first: ZoneRules, second: ZoneRules) -> None:
    """Raises ConfigError, with both versions and the first difference, if the programs' clocks differ somewhere.

    Different versions with the same rules are no error.
    """
    if first.offsets == second.offsets and first.offsets:
        return
    sides = tuple(zip_longest(first.offsets, second.offsets))
    at = next((at for at, (one, other) in enumerate(sides) if one != other), 0)
    expected, found = (_side(item, at) for item in (first, second))
    raise ConfigError(
        "two programs have different time-zone data, so a row could get another day than the run expects",
        expected=expected,
        found=found,
        where=f"time zone {zone}",
        hint="; or ".join(f"Update the data of {item.program}: {item.update}" for item in _to_update(first, second)),
    )


def _to_update(first: ZoneRules, second: ZoneRules) -> tuple[ZoneRules, ...]:
    """The one that does not know the zone, else the one with the older data; both if that can't be known."""
    if bool(first.offsets) != bool(second.offsets):
        return (second if first.offsets else first,)
    if first.version is None or second.version is None or first.version == second.version:
        return first, second
    return (min(first, second, key=lambda item: str(item.version)),)


def _side(item: ZoneRules, at: int) -> str:
    program = f"{item.program}, data {item.version or 'of unknown version'}"
    if not item.offsets:
        return f"{program}: no such zone"
    if at >= len(item.offsets):
        return f"{program}: no further change"
    second, offset = item.offsets[at]
    sign, minutes = "-" if offset < 0 else "+", abs(offset) // 60
    moment = datetime.fromtimestamp(second, UTC).isoformat(timespec="minutes")
    return f"{program}: UTC{sign}{minutes // 60:02}:{minutes % 60:02} from {moment}"
