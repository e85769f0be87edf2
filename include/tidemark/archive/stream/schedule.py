"""Times by the wall clock: a cron expression in a time zone, and an alarm that rings when one has passed."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from croniter import croniter

from tidemark.definitions.stream import Stream

# Within this distance of a clock change local times may be out of order. No change was ever larger.
_NEAR = timedelta(hours=25)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The moments at which a clock in ``zone`` shows a time that matches ``cron``.

    A time that the clock shows twice is two moments. A time that it skips is shifted: it lies as far after the clock
    change as the time lies after the start of the skipped hour.
    """

    cron: str
    zone: ZoneInfo

    def next(self, after: datetime) -> datetime:
        """The first moment after ``after`` (with a zone), in UTC."""
        start = after.astimezone(self.zone).replace(tzinfo=None) - self._shift(after)
        times = croniter(self.cron, start)
        first: datetime | None = None
        last: datetime | None = None
        while True:
            time = times.get_next(datetime)
            if first is not None and last is not None and time > last:
                return first
            for moment in self._moments(time):
                if moment > after and (first is None or moment < first):
                    first, last = moment, time + self._shift(moment)

    def _shift(self, moment: datetime) -> timedelta:
        """By how much clocks change around the moment; usually 0."""
        offsets = [(moment + near).astimezone(self.zone).utcoffset() or timedelta() for near in (-_NEAR, _NEAR)]
        return abs(offsets[0] - offsets[1])

    def _moments(self, time: datetime) -> list[datetime]:
        first, second = (time.replace(tzinfo=self.zone, fold=fold).astimezone(UTC) for fold in (0, 1))
        return [first, second] if second > first else [first]


class Alarm:
    """Rings if at least one moment of the schedule has passed since it was set."""

    def __init__(self, schedule: Schedule, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._schedule = schedule
        self._clock = clock
        self.set()

    @classmethod
    def of(cls, stream: Stream) -> "Alarm | None":
        """The alarm of the stream's ``rotate_schedule``; None if it has none."""
        cron = stream.archive.rotate_schedule
        return None if cron is None else cls(Schedule(cron=cron, zone=stream.zone))

    def set(self) -> None:
        """Wait for the next moment from now on."""
        self._next = self._schedule.next(self._clock())

    def rings(self) -> bool:
        return self._clock() >= self._next
