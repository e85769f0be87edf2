"""Calendar days of a time zone as instants."""

from datetime import UTC, date, datetime, time, timedelta, tzinfo

from tidemark.core.errors import RequestError

# A day's number since 1970-01-01 is its ordinal minus this.
EPOCH_DAY = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros(moment: datetime) -> int:
    """Microseconds since the epoch of an instant with a zone."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def moment_text(time_us: int, zone: tzinfo) -> str:
    """An instant in ISO 8601, to the millisecond. Timestamps in a wrong unit may have a year outside 1 to 9999."""
    try:
        return (_EPOCH + timedelta(microseconds=time_us)).astimezone(zone).isoformat(timespec="milliseconds")
    except OverflowError:
        return f"no year from 1 to 9999 ({time_us} µs since 1970)"


def day_start(day: date, zone: tzinfo) -> datetime:
    """The first instant of the day, in UTC: if the clocks skip midnight, the change; of two midnights, the first."""
    return datetime.combine(day, time.min, tzinfo=zone).astimezone(UTC)


def day_end(day: date, zone: tzinfo) -> datetime:
    """The first instant after the day, in UTC: 23, 24 or 25 hours after its start."""
    return day_start(day + timedelta(days=1), zone)


def day_of(moment: datetime, zone: tzinfo) -> date:
    """The calendar day of an instant."""
    return moment.astimezone(zone).date()


def days_between(first: date, last: date) -> tuple[date, ...]:
    """Every day from ``first`` to ``last``, inclusive. Raises RequestError if ``last`` is before ``first``."""
    if last < first:
        raise RequestError("a span of days ends before it starts", expected=f"a day from {first} on", found=last)
    return tuple(first + timedelta(days=at) for at in range((last - first).days + 1))
