"""Numbers, times and reasons in words, as every page says them."""

from collections.abc import Iterable
from datetime import UTC, datetime, tzinfo

from tidemark.core.days import micros, moment_text, utc_second

_MINUTE, _HOUR, _DAY = 60, 3600, 86400

REASONS = {
    "requested": "a person asked for it",
    "scheduled": "the schedule's run",
    "late": "late records arrived",
    "unproven": "an earlier run had published it without a proof",
    None: "brought back by a person",
}
CAUSES = {
    "transactional": "markers and aborted records of transactions",
    "compacted": "removed by topic compaction",
    "unexplained": "without a proven cause",
}


def number(value: int | None) -> str:
    """With thousands separators; a dash for None."""
    return "–" if value is None else f"{value:,}"


def plural(value: int, one: str, many: str = "") -> str:
    """A number with its noun."""
    return f"{value:,} {one if value == 1 else many or one + 's'}"


def sentence(text: str) -> str:
    """With a capital letter first, and a full stop. A name in quotation marks, a date or a key stays as it is."""
    found = text.strip()
    if not found:
        return ""
    key = found.split()[0].endswith(":")  # of a definition: "time_zone: not a time zone"
    return f"{found[0] if key else found[0].upper()}{found[1:]}{'' if found[-1] in '.!?' else '.'}"


def span(seconds: float) -> str:
    """A length of time to its first two units, such as ``3 h 5 min``."""
    whole = max(int(seconds), 0)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min"
    if whole < 2 * _DAY:
        minutes = whole % _HOUR // _MINUTE
        return f"{whole // _HOUR} h {minutes} min" if minutes else f"{whole // _HOUR} h"
    return plural(whole // _DAY, "day")


def record_state(status: tuple[str, str | None] | None, in_version: object) -> str:
    """What a version did with a record: its status in the version's snapshots, and whether the version has it."""
    if status is not None:
        return ": ".join(text for text in status if text)
    if in_version is None:
        return "not sealed yet"
    return (
        "its snapshots have expired, or lack the record"
        if in_version
        else "not in this version: archived later, or lost"
    )


def ago(moment: datetime, now: datetime) -> str:
    """How long ago a moment is."""
    return f"{span((now - moment).total_seconds())} ago"


def minute(moment: datetime) -> str:
    """A moment in UTC to the minute."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def zone_minute(value: int, zone: tzinfo) -> str:
    """A moment in µs since the epoch, to the minute, with the hours that its zone is from UTC."""
    found = moment_text(value, zone)
    return f"{found[:16].replace('T', ' ')} {found[23:]}" if found[10] == "T" else found


def second(moment: datetime) -> str:
    """A moment in UTC to the second."""
    return utc_second(micros(moment))


def listed(texts: Iterable[str], most: int = 5) -> str:
    """Texts with commas; of many the first ones and how many more."""
    found = list(texts)
    if len(found) <= most:
        return ", ".join(found)
    return f"{', '.join(found[:most])} and {len(found) - most:,} more"
