"""Calendar days of a time zone as instants."""

from datetime import UTC, date, datetime, time, timedelta, tzinfo

from tidemark.core.errors import ConfigError

# Of a date's ordinal number, where a day is counted from 1970-01-01.
EPOCH_DAY = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros(moment: datetime) -> int:
    """Microseconds since the epoch of an instant, which has a zone."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def moment_text(stamp_us: int, zone: tzinfo) -> str:
    """An instant in ISO 8601, to the millisecond; in words where its year is none of the calendar's.

    A producer that counts in another unit stamps such records.
    """
    try:
        return (_EPOCH + timedelta(microseconds=stamp_us)).astimezone(zone).isoformat(timespec="milliseconds")
    except OverflowError:
        return f"no year from 1 to 9999 ({stamp_us} µs since 1970)"


def day_start(day: date, zone: tzinfo) -> datetime:
    """The first instant of the day, in UTC.

    Where the clocks skip midnight that is the moment they are put forward; where midnight comes twice, the first.
    """
    return datetime.combine(day, time.min, tzinfo=zone).astimezone(UTC)


def day_end(day: date, zone: tzinfo) -> datetime:
    """The first instant after the day, in UTC: 23, 24 or 25 hours behind its start."""
    return day_start(day + timedelta(days=1), zone)


def day_of(moment: datetime, zone: tzinfo) -> date:
    """The calendar day an instant falls on."""
    return moment.astimezone(zone).date()


def days_between(first: date, last: date) -> tuple[date, ...]:
    """Every day from ``first`` to ``last``, both included; raises ConfigError where last is before first."""
    if last < first:
        raise ConfigError("a span of days ends before it starts", expected=f"a day from {first} on", found=last)
    return tuple(first + timedelta(days=at) for at in range((last - first).days + 1))
