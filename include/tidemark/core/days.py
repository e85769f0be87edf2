"""Calendar days of a time zone as instants.

A day need not be one span of time: see ``day_spans``. ``day_of`` decides the day of an instant.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache

from tidemark.core.errors import RequestError

# A day's number since 1970-01-01 is its ordinal minus this.
EPOCH_DAY = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY, _HOUR, _SECOND = timedelta(days=1), timedelta(hours=1), timedelta(seconds=1)
_FIRST, _LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
Span = tuple[datetime, datetime]


def micros(moment: datetime) -> int:
    """Microseconds since the epoch of an instant with a zone."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def moment_text(time_us: int, zone: tzinfo) -> str:
    """An instant in ISO 8601, to the millisecond. Timestamps in a wrong unit may have a year outside 1 to 9999."""
    try:
        return (_EPOCH + timedelta(microseconds=time_us)).astimezone(zone).isoformat(timespec="milliseconds")
    except OverflowError:
        return f"no year from 1 to 9999 ({time_us} µs since 1970)"


def utc_second(time_us: int) -> str:
    """A moment in µs since the epoch, in UTC to the second."""
    return moment_text(time_us, UTC)[:19].replace("T", " ") + " UTC"


@lru_cache(maxsize=10_000)
def day_spans(day: date, zone: tzinfo) -> tuple[Span, ...]:
    """The instants of the day in UTC: consecutive ``(start, end)``, the end excluded. Usually it is one span.

    There are two if the clocks went back across midnight: in St. John's, until 2011, from 00:01 of a Sunday to 23:01 of
    the Saturday before. There is none if the calendar skipped the day, as Samoa's did when it crossed the date line.
    """
    midnight = datetime.combine(day, time.min, tzinfo=UTC)
    spans: list[Span] = []
    for start, end, offset in constant_offsets(_bounded(midnight, -_DAY), _bounded(midnight, 2 * _DAY), zone):
        first, last = max(start, _bounded(midnight, -offset)), min(end, _bounded(midnight, _DAY - offset))
        if first < last and spans and spans[-1][1] == first:
            spans[-1] = spans[-1][0], last
        elif first < last:
            spans.append((first, last))
    return tuple(spans)


def day_start(day: date, zone: tzinfo) -> datetime:
    """The first instant of the day, in UTC: if the clocks skip midnight, the change; of two midnights, the first.

    For a skipped day it is the first instant of the next one.
    """
    spans = day_spans(day, zone)
    return spans[0][0] if spans else day_start(day + _DAY, zone)


def day_end(day: date, zone: tzinfo) -> datetime:
    """The first instant after which no other is of the day, in UTC. A few may be of the next day already.

    For a skipped day it is the first instant of the next one.
    """
    spans = day_spans(day, zone)
    return spans[-1][1] if spans else day_start(day + _DAY, zone)


def seal_deadline(day: date, zone: tzinfo, sealed_by: str | None, grace: timedelta) -> datetime:
    """From when on the day is overdue without a seal, in UTC: ``sealed_by`` (HH:MM) on the next day, else ``grace``
    after its end.

    Of a time that the clocks show twice it is the first. A time that they skip counts by the offset before the change.
    """
    if sealed_by is None:
        return _bounded(day_end(day, zone), grace)
    local = _bounded(datetime.combine(day, time.fromisoformat(sealed_by), tzinfo=UTC), _DAY)
    return _bounded(local, -(local.replace(tzinfo=zone).utcoffset() or timedelta()))


def day_of(moment: datetime, zone: tzinfo) -> date:
    """The calendar day of an instant."""
    return moment.astimezone(zone).date()


def last_ended(moment: datetime, zone: tzinfo) -> date:
    """The latest day that is over at ``moment``; the moment a day ends at counts."""
    day = day_of(moment, zone)
    while day_end(day, zone) > moment:
        day -= _DAY
    return day


def constant_offsets(start: datetime, end: datetime, zone: tzinfo) -> Iterator[tuple[datetime, datetime, timedelta]]:
    """The parts of the time between two instants with one offset of the zone, and that offset.

    It asks for the offset every hour, because Python does not give a zone's changes. No zone has two in an hour.
    """
    at = probe = start
    offset = _offset(at, zone)
    while probe < end:
        following = min(_bounded(probe, _HOUR), end)
        if _offset(following, zone) != offset:
            low, high = probe, following
            while high - low > _SECOND:
                middle = low + (high - low) // (2 * _SECOND) * _SECOND
                low, high = (middle, high) if _offset(middle, zone) == offset else (low, middle)
            yield at, high, offset
            at, offset = high, _offset(high, zone)
        probe = following
    yield at, end, offset


def _offset(moment: datetime, zone: tzinfo) -> timedelta:
    try:
        return moment.astimezone(zone).utcoffset() or timedelta()
    except OverflowError:  # the local time is before the first one that Python knows, or after the last
        return moment.replace(tzinfo=zone).utcoffset() or timedelta()


def _bounded(moment: datetime, change: timedelta) -> datetime:
    """The changed instant, or the first or last one that Python knows."""
    try:
        return moment + change
    except OverflowError:
        return _FIRST if change < timedelta() else _LAST


def days_between(first: date, last: date) -> tuple[date, ...]:
    """Every day from ``first`` to ``last``, inclusive. Raises RequestError if ``last`` is before ``first``."""
    if last < first:
        raise RequestError("a span of days ends before it starts", expected=f"a day from {first} on", found=last)
    return tuple(first + timedelta(days=at) for at in range((last - first).days + 1))


def date_ranges(days: Sequence[date]) -> str:
    """The days as text, consecutive ones as a range: ``2025-06-01 to 2025-06-03, 2025-06-09``."""
    ranges: list[list[date]] = []
    for day in days:
        if ranges and day - ranges[-1][-1] == timedelta(days=1):
            ranges[-1].append(day)
        else:
            ranges.append([day])
    return ", ".join(f"{item[0]} to {item[-1]}" if len(item) > 1 else f"{item[0]}" for item in ranges)
