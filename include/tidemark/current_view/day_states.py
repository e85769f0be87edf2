"""The state of each day of a stream: sealed, or how long it has been over without a seal."""

from collections import Counter
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Literal

from tidemark.core.days import day_end, day_of, days_between, last_ended
from tidemark.core.errors import ConfigError
from tidemark.core.layout import Layout
from tidemark.core.seal import Seal
from tidemark.current_view.view import pin
from tidemark.definitions.stream import Stream
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.tables.seals import seals_by_day

DEFAULT_DAYS = 30
DAYS_MAX = 3660


@dataclass(frozen=True, slots=True, kw_only=True)
class DayState:
    """One day of a stream.

    ``seal`` is the latest one. A day without a seal is ``overdue`` when its grace period has passed, ``unsealed``
    before that, and ``not_over`` until it ends. ``waiting_max`` is an upper bound of the records that are archived but
    not published.
    """

    day: date
    status: Literal["sealed", "overdue", "unsealed", "not_over"]
    seal: Seal | None
    waiting_max: int


def read_day_states(
    settings: Settings, stream: Stream, *, first: date | None, last: date | None, grace: timedelta, now: datetime
) -> tuple[DayState, ...]:
    """The days from ``first`` to ``last``, both included.

    ``last`` defaults to the latest day that is over. ``first`` defaults to the first sealed or archived day, but at
    most 30 days are read. Days before that one are overdue only if ``first`` names them.
    """
    today = day_of(now, stream.zone)
    last = last or last_ended(now, stream.zone)
    if last > today:
        raise ConfigError("the day has not begun", expected=f"{today} at the latest", found=last)
    waiting: Counter[date] = Counter()
    for part in pin(settings, stream.name).plan.archive_parts:
        waiting[part.day] += part.records_max
    store, layout = ObjectStore(settings), Layout(prefix=settings.prefix, stream=stream.name)
    first_sealed = min(
        (layout.parse_seal_key(item.key)[0] for item in store.list(layout.seal_prefix)), default=date.max
    )
    start = first or _default_start(min([first_sealed, *waiting]), last)
    if (last - start).days >= DAYS_MAX:
        raise ConfigError("too many days", expected=f"{DAYS_MAX} at most", found=f"{start} to {last}")
    days = days_between(start, last)
    seals = {day: found[-1] for day, found in seals_by_day(store, layout, days).items() if found}

    def status(day: date) -> Literal["sealed", "overdue", "unsealed", "not_over"]:
        if day in seals:
            return "sealed"
        age = now - day_end(day, stream.zone)
        if age < timedelta():
            return "not_over"
        # Before the first seal, a day counts only if it was asked for or the archive has records of it.
        counts = first is not None or day >= first_sealed or waiting[day] > 0
        return "overdue" if age > grace and counts else "unsealed"

    return tuple(DayState(day=day, status=status(day), seal=seals.get(day), waiting_max=waiting[day]) for day in days)


def _default_start(known: date, last: date) -> date:
    if known > last:
        raise ConfigError(
            "there is no day to show",
            expected=f"a sealed or archived day up to {last}",
            found="none" if known == date.max else f"{known} as the first one",
            hint="Name the first day with --from",
        )
    return max(known, last - timedelta(days=DEFAULT_DAYS - 1))
