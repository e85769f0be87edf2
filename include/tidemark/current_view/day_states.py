"""The state of each day of a stream: sealed, published without a proof, or how long it has been over."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Literal

from tidemark.archive.ledger.history import History
from tidemark.archive.ledger.ledger import Archived, read_archived
from tidemark.core.day_summary import DaySummary, latest_summaries
from tidemark.core.days import day_end, day_of, days_between, last_ended, seal_deadline
from tidemark.core.errors import RequestError
from tidemark.core.layout import Layout
from tidemark.current_view.plan import CurrentPlan, PublishedDay, day_spans, find_conflicts, plan_current
from tidemark.definitions.stream import Stream
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.tables.day_publications import day_publications
from tidemark.tables.day_summaries import read_day_summaries
from tidemark.tables.main_history import MainHistory, last_of_days, read_main_history
from tidemark.tables.seals import unsealed_publications
from tidemark.tables.snapshot_summary import RANGES_PROPERTY, parse_ranges

DEFAULT_DAYS = 30
DAYS_MAX = 3660
Status = Literal["sealed", "unproven", "overdue", "unsealed", "not_over", "quiet"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DayState:
    """One day of a stream.

    ``sealed`` is its latest seal in short. A day is ``unproven`` if readers see rows that no seal proves. They are
    those of run ``unproven_run``, None if Tidemark did not publish them. ``half_published``: that run died between the
    quarantine and the table. Another day without a seal is ``overdue`` when
    its deadline has passed, ``unsealed`` before that, and ``not_over`` until it ends. A stream's status shows it as
    ``quiet`` if no record is of this day or a later one. ``waiting_max`` is an upper bound of the records that are
    archived but not published.
    """

    day: date
    status: Status
    sealed: DaySummary | None
    waiting_max: int
    unproven_run: str | None = None
    half_published: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDays:
    """A stream's tables, archive and seals. The published table is read first, and then the quarantine, so the others
    have all that was published."""

    history: MainHistory
    quarantine: MainHistory
    archived: Archived
    seals: tuple[DaySummary, ...]

    @classmethod
    def read(cls, settings: Settings, store: ObjectStore, stream: Stream) -> "StoredDays":
        """Raises what ``read_main_history``, ``read_archived`` and ``read_day_summaries`` raise."""
        history, quarantine = (
            read_main_history(settings, store, name, somebody_waits=False)
            for name in (stream.table, stream.quarantine_table)
        )
        layout = Layout(prefix=settings.prefix, stream=stream.name)
        archived = read_archived(store, layout, stream)
        return cls(history=history, quarantine=quarantine, archived=archived, seals=read_day_summaries(store, layout))


def last_archived(archived: Archived) -> date | None:
    """The latest day with an archived record."""
    parts = (*(item.tables for item in archived.segments), *archived.tables)
    return max((day for day, _ in day_spans(parts)), default=None)


def read_day_states(
    settings: Settings,
    stream: Stream,
    *,
    first: date | None,
    last: date | None,
    grace: timedelta,
    now: datetime,
    stored: StoredDays | None = None,
) -> tuple[DayState, ...]:
    """The days from ``first`` to ``last``, both included.

    ``last`` defaults to the latest day that is over. ``first`` defaults to the first sealed, published or archived day,
    but at most 30 days before ``last``. Then earlier days are there too: those with rows or records that no seal
    proves, and the last 30 of a stream without later records. Days before the first sealed rows are overdue only if
    ``first`` names them. ``grace``: until the deadline of a stream without ``batch.sealed_by``. ``stored``: as read.
    """
    today = day_of(now, stream.zone)
    last = last or last_ended(now, stream.zone)
    if last > today:
        raise RequestError("the day has not begun", expected=f"{today} at the latest", found=last)
    store, layout = ObjectStore(settings), Layout(prefix=settings.prefix, stream=stream.name)
    stored = stored or StoredDays.read(settings, store, stream)
    plan, not_ours = _shown(settings, stream, stored)
    waiting, sealed = _waiting(plan), latest_summaries(stored.seals)
    shown = day_publications(stored.history, stored.quarantine)
    published = unsealed_publications(store, layout, shown, known=stored.seals)
    # Rows that Tidemark did not publish are unproven too, unless a seal shows that they have replaced its own.
    unproven = {**dict.fromkeys(set(not_ours) - sealed.keys()), **{day: it.run for day, it in published.items()}}
    known = [*sealed, *unproven, *waiting]
    start = first or _default_start(min(known, default=date.max), last)
    if (last - start).days >= DAYS_MAX:
        raise RequestError("too many days", expected=f"{DAYS_MAX} at most", found=f"{start} to {last}")
    earlier = () if first else _earlier(known, start, set(unproven) | set(waiting))
    days = (*earlier, *days_between(start, last))
    first_sealed = min((day for day, item in sealed.items() if item.rows_read), default=date.max)

    def status(day: date) -> Status:
        if day in unproven:
            return "unproven"
        if day in sealed:
            return "sealed"
        if now < day_end(day, stream.zone):
            return "not_over"
        # Before the first sealed rows, a day counts only if it was asked for or the archive has records of it.
        counts = first is not None or day >= first_sealed or waiting[day] > 0
        late = now > seal_deadline(day, stream.zone, stream.batch.sealed_by, grace)
        return "overdue" if late and counts else "unsealed"

    return tuple(
        DayState(
            day=day,
            status=status(day),
            sealed=sealed.get(day),
            waiting_max=waiting[day],
            unproven_run=unproven.get(day),
            half_published=day in published and published[day].is_half,
        )
        for day in days
    )


def _waiting(plan: CurrentPlan) -> Counter[date]:
    found: Counter[date] = Counter()
    for part in plan.archive_parts:
        found[part.day] += part.records_max
    return found


def _earlier(known: Sequence[date], start: date, unsealed: Collection[date]) -> tuple[date, ...]:
    """The days before ``start`` that are shown too."""
    newest = max(known, default=start)
    last_known = (
        days_between(max(min(known), newest - timedelta(days=DEFAULT_DAYS - 1)), newest) if newest < start else ()
    )
    return tuple(sorted({day for day in (*last_known, *unsealed) if day < start}))


def _shown(settings: Settings, stream: Stream, stored: StoredDays) -> tuple[CurrentPlan, tuple[date, ...]]:
    """What readers of the current view get, and the days with rows that Tidemark did not publish.

    Only runs write to most tables: the snapshots' summaries then say it all. Otherwise the files of the table do.
    """
    parts = [*(item.tables for item in stored.archived.segments), *stored.archived.tables]
    history = History(parts)
    published = _published(stored.history)
    if published is None or find_conflicts(history):
        from tidemark.current_view.view import pin

        view = pin(settings, stream.name)
        return view.plan, view.days_not_ours
    plan = plan_current(stream=stream.name, history=history, spans=day_spans(parts), published=published, conflicts={})
    return plan, ()


def _published(history: MainHistory) -> Mapping[date, PublishedDay] | None:
    """The offsets that the publication of each day has read; None if the summaries do not say all of them."""
    last = last_of_days(history)
    shown = {item.snapshot_id for item in last.values()}
    snapshots = [item for item in history.snapshots if item.snapshot_id in shown]
    if not history.ours or not all(RANGES_PROPERTY in item.summary for item in snapshots):
        return None
    days = {
        item.snapshot_id: PublishedDay(
            ranges=parse_ranges(item.summary[RANGES_PROPERTY], where=f"snapshot {item.snapshot_id}")
        )
        for item in snapshots
    }
    return {day: days[item.snapshot_id] for day, item in last.items()}


def _default_start(known: date, last: date) -> date:
    if known > last:
        raise RequestError(
            "there is no day to show",
            expected=f"a sealed or archived day up to {last}",
            found="none" if known == date.max else f"{known} as the first one",
            hint="Name the first day with --from",
        )
    return max(known, last - timedelta(days=DEFAULT_DAYS - 1))
