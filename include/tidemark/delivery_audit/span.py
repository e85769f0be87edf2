"""The span of an audit: from days or moments in the stream's time zone to two instants."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo

from tidemark.core.days import day_end, day_of, day_start, days_between, micros
from tidemark.core.errors import ConfigError

_DAY_CHARACTERS = len("2013-01-14")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSpan:
    """Instants ``start <= t < end``, in UTC; never empty."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if self.end <= self.start:
            raise ConfigError("a span ends before it starts", expected=f"an end after {self.start}", found=self.end)

    @property
    def start_us(self) -> int:
        """The start in µs since the epoch."""
        return micros(self.start)

    @property
    def end_us(self) -> int:
        return micros(self.end)

    def days(self, zone: tzinfo) -> tuple[date, ...]:
        """Every calendar day that has an instant of the span."""
        return days_between(day_of(self.start, zone), day_of(self.end - timedelta(microseconds=1), zone))

    def whole_days(self, zone: tzinfo) -> bool:
        """Whether it is made of whole calendar days."""
        days = self.days(zone)
        return (self.start, self.end) == (day_start(days[0], zone), day_end(days[-1], zone))


def parse_span(start: str | None, end: str | None, zone: tzinfo, now: datetime) -> TimeSpan:
    """The span from ``start`` to ``end``: ISO days, the last one included, or moments, the last one not.

    A moment without an offset is in ``zone``; of one that comes twice the first is meant, and one that the clocks skip
    is told as if they had not been put forward. Without ``end`` the span ends with the day it starts on; without both
    it is yesterday. Raises ConfigError for other text, an end without a start, and an end at or before the start.
    """
    if start is None:
        if end is not None:
            raise ConfigError("a span has an end and no start", expected="--from", found=f"--to {end}")
        yesterday = day_of(now, zone) - timedelta(days=1)
        return TimeSpan(start=day_start(yesterday, zone), end=day_end(yesterday, zone))
    first = _instant(start, zone, last=False)
    return TimeSpan(
        start=first, end=day_end(day_of(first, zone), zone) if end is None else _instant(end, zone, last=True)
    )


def _instant(text: str, zone: tzinfo, *, last: bool) -> datetime:
    try:
        if len(text) == _DAY_CHARACTERS:
            day = date.fromisoformat(text)
            return day_end(day, zone) if last else day_start(day, zone)
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(
            "neither a day nor a moment", expected="such as 2013-01-14 or 2013-01-14T09:30", found=text
        ) from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(UTC)
