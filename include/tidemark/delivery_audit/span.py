"""The span of an audit: two instants, parsed from days or times in the stream's time zone."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo

from tidemark.core.days import day_end, day_of, day_spans, day_start, days_between, last_ended, micros
from tidemark.core.errors import RequestError

_DAY_CHARACTERS = len("2013-01-14")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSpan:
    """Instants ``start <= t < end``, in UTC; never empty."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if self.end <= self.start:
            raise RequestError("a span ends before it starts", expected=f"an end after {self.start}", found=self.end)

    @property
    def start_us(self) -> int:
        """The start in µs since the epoch."""
        return micros(self.start)

    @property
    def end_us(self) -> int:
        return micros(self.end)

    def days(self, zone: tzinfo) -> tuple[date, ...]:
        """Every calendar day that overlaps the span."""
        first, last = day_of(self.start, zone), day_of(self.end - timedelta(microseconds=1), zone)
        near = days_between(min(first, last) - timedelta(days=1), max(first, last) + timedelta(days=1))
        return tuple(
            day for day in near if any(start < self.end and end > self.start for start, end in day_spans(day, zone))
        )

    def whole_days(self, zone: tzinfo) -> bool:
        """Whether the span consists of whole calendar days."""
        days = self.days(zone)
        return (self.start, self.end) == (day_start(days[0], zone), day_end(days[-1], zone))


def parse_span(start: str | None, end: str | None, zone: tzinfo, now: datetime) -> TimeSpan:
    """The span from ``start`` to ``end``: ISO days, the last one included, or times, the last one excluded.

    A time without an offset is in ``zone``: a repeated local time means the first one, a skipped one counts as if the
    clocks had not changed. Without ``end`` the span ends with the day of its start. Without both it is yesterday.
    """
    if start is None:
        if end is not None:
            raise RequestError("a span has an end and no start", expected="--from", found=f"--to {end}")
        yesterday = last_ended(now, zone)
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
        raise RequestError(
            "neither a day nor a time", expected="such as 2013-01-14 or 2013-01-14T09:30", found=text
        ) from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(UTC)
