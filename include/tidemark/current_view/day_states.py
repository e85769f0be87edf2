"""The state of each day of a stream: sealed, published without a proof, or how long it has been over."""

from collections import Counter
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Literal

from tidemark.core.days import day_end, day_of, days_between, last_ended
from tidemark.core.errors import RequestError
from tidemark.core.layout import Layout
from tidemark.core.seal import Seal
from tidemark.current_view.view import pin
from tidemark.definitions.stream import Stream
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.tables.seals import seals_by_day, unsealed_publications

DEFAULT_DAYS = 30
DAYS_MAX = 3660
Status = Literal["sealed", "unproven", "overdue", "unsealed", "not_over"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DayState:
    """One day of a stream.

    ``seal`` is the latest one. A day is ``unproven`` if readers see rows of it that no seal proves: those of run
    ``unproven_run``, None if Tidemark did not publish them. Another day without a seal is ``overdue`` when its grace
    period has passed, ``unsealed`` before that, and ``not_over`` until it ends. ``waiting_max`` is an upper bound of
    the records that are archived but not published.
    """

    day: date
    status: Status
    seal: Seal | None
    waiting_max: int
    unproven_run: str | None = None


def read_day_states(
    settings: Settings, stream: Stream, *, first: date | None, last: date | None, grace: timedelta, now: datetime
) -> tuple[DayState, ...]:
    """The days from ``first`` to ``last``, both included.

    ``last`` defaults to the latest day that is over. ``first`` defaults to the first sealed, published or archived day,
    but at most 30 days before ``last``. Then every earlier day that is archived or published and not sealed is there
    too. Days before the first known one are overdue only if ``first`` names them.
    """
    today = day_of(now, stream.zone)
    last = last or last_ended(now, stream.zone)
    if last > today:
        raise RequestError("the day has not begun", expected=f"{today} at the latest", found=last)
    view = pin(settings, stream.name)
    waiting: Counter[date] = Counter()
    for part in view.plan.archive_parts:
        waiting[part.day] += part.records_max
    store, layout = ObjectStore(settings), Layout(prefix=settings.prefix, stream=stream.name)
    sealed = {layout.parse_seal_key(item.key)[0] for item in store.list(layout.seal_prefix)}
    published = unsealed_publications(store, layout, view.table)
    # Rows that Tidemark did not publish are unproven too, unless a seal shows that they have replaced its own.
    unproven = {**dict.fromkeys(set(view.days_not_ours) - sealed), **{day: it.run for day, it in published.items()}}
    start = first or _default_start(min([*sealed, *unproven, *waiting], default=date.max), last)
    if (last - start).days >= DAYS_MAX:
        raise RequestError("too many days", expected=f"{DAYS_MAX} at most", found=f"{start} to {last}")
    earlier = () if first else sorted(day for day in unproven.keys() | waiting.keys() - sealed if day < start)
    days = (*earlier, *days_between(start, last))
    seals = {day: found[-1] for day, found in seals_by_day(store, layout, days).items() if found}
    first_sealed = min(sealed, default=date.max)

    def status(day: date) -> Status:
        if day in unproven:
            return "unproven"
        if day in seals:
            return "sealed"
        age = now - day_end(day, stream.zone)
        if age < timedelta():
            return "not_over"
        # Before the first seal, a day counts only if it was asked for or the archive has records of it.
        counts = first is not None or day >= first_sealed or waiting[day] > 0
        return "overdue" if age > grace and counts else "unsealed"

    return tuple(
        DayState(
            day=day,
            status=status(day),
            seal=seals.get(day),
            waiting_max=waiting[day],
            unproven_run=unproven.get(day),
        )
        for day in days
    )


def _default_start(known: date, last: date) -> date:
    if known > last:
        raise RequestError(
            "there is no day to show",
            expected=f"a sealed or archived day up to {last}",
            found="none" if known == date.max else f"{known} as the first one",
            hint="Name the first day with --from",
        )
    return max(known, last - timedelta(days=DEFAULT_DAYS - 1))
