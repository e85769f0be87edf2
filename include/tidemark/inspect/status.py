"""One answer to "is it fine?": every stream's layers, days and last run, and what needs attention."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import TypeVar

from tidemark.archive.ledger.history import History
from tidemark.archive.ledger.ledger import Archived, read_archived
from tidemark.archive.retention import Retention, read_retention
from tidemark.core.day_summary import DaySummary
from tidemark.core.days import date_ranges, seal_deadline
from tidemark.core.errors import ConfigError, RequestError, TidemarkError
from tidemark.core.layout import Layout
from tidemark.core.text import error_text
from tidemark.current_view.day_states import DayState, StoredDays, last_archived, read_day_states
from tidemark.definitions.stream import Stream, load_stream
from tidemark.inspect.health import LayerHealth, read_layers
from tidemark.inspect.last_run import LastRun, read_last_run
from tidemark.inspect.problems import Problem
from tidemark.inspect.tide import Tide, make_tide, sealed_ends
from tidemark.reconcile.lease import Holder, read_holder
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.tables.day_summaries import read_day_summaries
from tidemark.tables.main_history import MainHistory, read_main_history, require_catalog

T = TypeVar("T")
U = TypeVar("U")
STALE_SECONDS = 60.0
GRACE = timedelta(hours=6)
_AT_ONCE = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStatus:
    """A stream at one moment.

    ``days`` are the last 30 that are over, and earlier ones that are not sealed. ``overdue`` days are not sealed
    although their deadline has passed; those after the last record are not overdue while nothing waits in Kafka.
    ``unproven`` days have rows that readers see and no seal proves. ``waiting`` is an upper bound of the records that
    are archived for a sealed day and not in it: the next run publishes them. What could not be found out is empty or
    None, and ``problems`` says why. ``days_known``: that no day is overdue means something.
    ``running`` is the run that is under way. ``tide`` is None if it could not be found out.
    """

    stream: str
    layers: tuple[LayerHealth, ...]
    days: tuple[DayState, ...]
    last_sealed: date | None
    overdue: tuple[date, ...]
    unproven: tuple[date, ...]
    waiting: int
    last_run: LastRun | None
    problems: tuple[Problem, ...]
    days_known: bool
    running: Holder | None
    tide: Tide | None = None


def read_status(
    settings: Settings,
    names: Sequence[str],
    *,
    now: datetime,
    stale_seconds: float = STALE_SECONDS,
    grace: timedelta = GRACE,
    first: date | None = None,
    last: date | None = None,
) -> tuple[StreamStatus, ...]:
    """The status of each stream. All questions are asked at once, and one without an answer hides no other.

    ``first`` and ``last`` ask for other days than the last 30. Without ``batch.sealed_by``, a day is overdue ``grace``
    after its end.

    Raises nothing about a single stream: its problem is then ``unknown``, or ``definition_invalid``.
    """
    ask = _Questions(
        settings=settings,
        store=ObjectStore(settings),
        now=now,
        stale_seconds=stale_seconds,
        grace=grace,
        first=first,
        last=last,
    )
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="status") as pool:
        catalog = pool.submit(require_catalog, settings)
        asked = [ask.about(name, pool, catalog) for name in names]
        return tuple(_status(item, grace) for item in asked)


@dataclass(slots=True, kw_only=True)
class _Asked:
    """What was asked about one stream; ``problems`` are added as the answers come."""

    name: str
    stream: Stream | None
    last_run: "Future[LastRun | None]"
    seals: "Future[tuple[DaySummary, ...]]"
    running: "Future[Holder | None]"
    layers: "Future[tuple[LayerHealth, ...]] | None" = None
    archived: "Future[Archived] | None" = None
    retention: "Future[Retention] | None" = None
    days: "Future[tuple[DayState, ...]] | None" = None
    tide: "Future[Tide] | None" = None
    problems: list[Problem] = field(default_factory=list)

    def answer(self, what: str, future: "Future[T] | None", without: U) -> T | U:
        try:
            return without if future is None else future.result()
        except Exception as error:  # noqa: BLE001 - one question without an answer must not hide the others
            self.problems.append(_unknown(f"the {what} of {self.name}", error))
            return without


@dataclass(frozen=True, slots=True, kw_only=True)
class _Questions:
    """What all questions need."""

    settings: Settings
    store: ObjectStore
    now: datetime
    stale_seconds: float
    grace: timedelta
    first: date | None
    last: date | None

    def about(self, name: str, pool: ThreadPoolExecutor, catalog: "Future[None]") -> _Asked:
        layout = Layout(prefix=self.settings.prefix, stream=name)
        stream, history, problems = None, None, []
        try:
            stream = load_stream(name, self.settings.streams_dir)
            history = pool.submit(self.history, stream, catalog)
        except ConfigError as error:
            hint = f"Correct the file; 'tidemark streams' checks it. Until then no layer or day of {name} is checked"
            problems.append(Problem(kind="definition_invalid", text=str(error), hint=hint))
        asked = _Asked(
            name=name,
            stream=stream,
            last_run=pool.submit(read_last_run, self.store, layout),
            seals=pool.submit(self.seals, layout, history),
            running=pool.submit(read_holder, self.store, layout, self.now),
            problems=problems,
        )
        if stream is None or history is None:
            return asked
        # These wait for answers that threads are working on: they were asked before.
        seals = asked.seals
        asked.archived = archived = pool.submit(self.archived, stream, layout, history)
        asked.layers = pool.submit(
            read_layers, self.settings, self.store, name, stale_seconds=self.stale_seconds, now=self.now
        )
        ranges = pool.submit(lambda: archived.result().history())
        asked.retention = retention = pool.submit(lambda: self.retention(stream, ranges.result()))
        asked.days = pool.submit(lambda: self.days(stream, history.result(), archived.result(), seals.result()))
        asked.tide = pool.submit(lambda: self.tide(layout, ranges.result(), retention.result(), seals.result()))
        return asked

    def history(self, stream: Stream, catalog: "Future[None]") -> tuple[MainHistory, MainHistory]:
        """The histories of the published table and then of the quarantine."""
        catalog.result()  # a server that does not answer is waited for once, not once per stream
        table, quarantine = (
            read_main_history(self.settings, self.store, name, somebody_waits=True)
            for name in (stream.table, stream.quarantine_table)
        )
        return table, quarantine

    def seals(
        self, layout: Layout, history: "Future[tuple[MainHistory, MainHistory]] | None"
    ) -> tuple[DaySummary, ...]:
        """The sealed versions, after the tables: so they have all that is published and proven."""
        wait([history] if history else [])
        return read_day_summaries(self.store, layout)

    def archived(self, stream: Stream, layout: Layout, history: "Future[tuple[MainHistory, MainHistory]]") -> Archived:
        """The archive, after the table: so it has all of the table's records. It needs no answer of the catalog."""
        wait([history])
        return read_archived(self.store, layout, stream)

    def retention(self, stream: Stream, ranges: History) -> Retention:
        """From the archive and Kafka, not from the heartbeat: it matters most when the stream does not run."""
        return read_retention(self.settings.kafka, stream, ranges.first_missing, self.now)

    def tide(self, layout: Layout, ranges: History, retention: Retention, seals: Sequence[DaySummary]) -> Tide:
        last = max(((item.day, item.version) for item in seals), default=None)
        return make_tide(retention, sealed_ends(self.store, layout, last), ranges.first_missing, self.now)

    def days(
        self,
        stream: Stream,
        tables: tuple[MainHistory, MainHistory],
        archived: Archived,
        seals: tuple[DaySummary, ...],
    ) -> tuple[DayState, ...]:
        try:
            return read_day_states(
                self.settings,
                stream,
                first=self.first,
                last=self.last,
                grace=self.grace,
                now=self.now,
                stored=StoredDays(history=tables[0], quarantine=tables[1], archived=archived, seals=seals),
            )
        except RequestError:
            if self.first or self.last:
                raise
            return ()  # nothing is sealed or archived up to yesterday


def _status(asked: _Asked, grace: timedelta) -> StreamStatus:
    """Wait for the answers."""
    last_run = asked.answer("last run", asked.last_run, None)
    seals = asked.answer("sealed days", asked.seals, ())
    last_sealed = max((item.day for item in seals), default=None)
    running = asked.answer("present run", asked.running, None)
    archived = asked.answer("archive", asked.archived, None)
    retention = asked.answer("retention", asked.retention, None) if archived else None
    layers = tuple(
        replace(item, retention=retention) if item.layer == "archive" else item
        for item in asked.answer("layers", asked.layers, ())
    )
    tide = asked.answer("tide", asked.tide, None) if retention else None
    answered = asked.answer("days", asked.days, None) if archived else None
    days = answered or ()
    if archived and retention and not retention.waiting:
        last = last_archived(archived)
        days = tuple(replace(item, status="quiet") if _is_quiet(item, last) else item for item in days)
    overdue = tuple(item.day for item in days if item.status == "overdue")
    return StreamStatus(
        stream=asked.name,
        layers=layers,
        days=days,
        last_sealed=last_sealed,
        overdue=overdue,
        unproven=tuple(item.day for item in days if item.status == "unproven"),
        waiting=sum(item.waiting_max for item in days if item.sealed is not None),
        last_run=last_run,
        problems=(
            *asked.problems,
            *(problem for item in layers for problem in _layer_problems(item, sealed=last_sealed is not None)),
            *_overdue_problems(asked.stream, overdue, grace),
            *_day_problems(asked.name, days),
            *_run_problems(asked.name, last_run),
        ),
        days_known=answered is not None,
        running=running,
        tide=tide,
    )


def _is_quiet(item: DayState, last_archived: date | None) -> bool:
    return item.status in {"overdue", "unsealed"} and (last_archived is None or item.day > last_archived)


def _unknown(what: str, error: Exception) -> Problem:
    found = f"{type(error).__name__}: {error}" if isinstance(error, TidemarkError) else error_text(error)
    return Problem(
        kind="unknown",
        text=f"Cannot find out {what}: {found}",
        hint="Check the connection: 'tidemark doctor' says what is missing",
    )


def _layer_problems(item: LayerHealth, *, sealed: bool) -> Iterator[Problem]:
    name, layer, heartbeat = item.stream, item.layer, item.heartbeat
    if item.unreadable:
        yield Problem(
            kind="unknown",
            text=f"Cannot find out whether the {layer} layer of {name} runs: {item.unreadable}",
            hint="A running layer replaces its heartbeat within 10 s. If this one stays, start the layer again, in"
            " the version that wrote it or a later one",
        )
    elif heartbeat is None and not sealed:  # a stream whose days are sealed from Kafka alone needs no archive layer
        text = f"The archive layer of {name} has never run, and no day is sealed"
        yield Problem(
            kind="archive_never_started",
            text=text,
            hint="Start the application archive_stream, or seal a day from Kafka alone with the DAG"
            f" reconcile_{name}, or with 'tidemark reconcile {name}'",
        )
    elif heartbeat is not None and heartbeat.state == "failed":
        text = f"The {layer} layer of {name} failed: {heartbeat.error or 'no error was recorded'}"
        yield Problem(kind=f"{layer}_failed", text=text, hint="Correct the cause, and start the layer again")
    elif heartbeat is not None and not item.alive and item.age_seconds < 0:
        text = (
            f"The {layer} layer of {name} has a heartbeat from the future, of {heartbeat.time:%Y-%m-%d %H:%M} UTC."
            " It is not known whether the layer runs"
        )
        hint = "Correct the clock of its machine or of this one. The layer's next heartbeat replaces the wrong one"
        yield Problem(kind=f"{layer}_stale", text=text, hint=hint)
    elif heartbeat is not None and not item.alive:
        last = f"{heartbeat.time:%Y-%m-%d %H:%M} UTC"
        text = f"The {layer} layer of {name} is {heartbeat.state}; its last heartbeat is from {last}"
        yield Problem(kind=f"{layer}_stale", text=text, hint="Start the layer again; if its process runs, see its log")
    if item.retention is not None and item.retention.late:
        yield Problem(
            kind="retention",
            text=f"{name}: {'; '.join(item.retention.lines())}",
            hint="Start the archive layer, or raise the topic's retention.ms. A run of a day that is over fetches its"
            f" records from Kafka: start one with the DAG reconcile_{name}, or with 'tidemark reconcile {name}'",
        )
    yield from _bound_problems(item)


def _bound_problems(item: LayerHealth) -> Iterator[Problem]:
    if item.heartbeat is None:
        return
    if item.times_unreadable:
        share = item.heartbeat.unreadable_times_share
        now = "" if share is None else f"; their share of the last hour's records is {100 * share:.3g} %"
        yield Problem(
            kind="unreadable_times",
            text=f"{item.stream}: {item.heartbeat.unreadable_times:,} records with a time field that can't be read"
            f"{now}; alarm until {item.heartbeat.unreadable_times_until:%Y-%m-%d %H:%M} UTC",
            hint="They are on the day of their Kafka timestamp. Compare event_time.field and event_time.format with a"
            " record. If so many have none as a rule, raise event_time.unreadable_alarm_share",
        )
    if not item.exceeded or item.heartbeat.alarm_until is None:
        return
    until = f"alarm until {item.heartbeat.alarm_until:%Y-%m-%d %H:%M} UTC"
    if rows := item.heartbeat.overflow_rows:
        yield Problem(
            kind="overflow",
            text=f"{item.stream}: {rows:,} records in the overflow folder, beyond archive.max_folders; {until}",
            hint="Choose a coarser archive.partition, or raise archive.max_folders",
        )
    if rows := item.heartbeat.out_of_bounds_rows:
        yield Problem(
            kind="out_of_bounds",
            text=f"{item.stream}: {rows:,} records with a time field beyond event_time.max_distance_days; {until}",
            hint="Correct the producer's clock or unit, or raise event_time.max_distance_days",
        )


def _overdue_problems(stream: Stream | None, overdue: Sequence[date], grace: timedelta) -> Iterator[Problem]:
    if stream is None or not overdue:
        return
    sealed_by = stream.batch.sealed_by
    limit = f"by {sealed_by} of the next day" if sealed_by else f"{grace.total_seconds() / 3600:g} h after their end"
    since = seal_deadline(overdue[0], stream.zone, sealed_by, grace).astimezone(stream.zone)
    yield Problem(
        kind="day_overdue",
        text=f"{stream.name}: days not sealed {limit}: {date_ranges(overdue)}."
        f" Overdue since {since:%Y-%m-%d %H:%M} in {stream.time_zone}",
        hint="Open the day's page, which says why, and rebuild it there. For many days use the DAG tidemark_backfill,"
        f" or 'tidemark backfill {stream.name} --from {overdue[0]} --to {overdue[-1]}'",
    )


def _day_problems(name: str, days: Sequence[DayState]) -> Iterator[Problem]:
    unproven = [item for item in days if item.status == "unproven"]
    if ours := [item.day for item in unproven if item.unproven_run]:
        half = [item.day for item in unproven if item.half_published]
        also = f". Of {date_ranges(half)} only the quarantine is published" if half else ""
        yield Problem(
            kind="day_unproven",
            text=f"{name}: days published, not proven: {date_ranges(ours)}. Readers see rows that no seal proves{also}",
            hint="Rebuild a day on its page: each run seals these days too. Or start a run of any day with the DAG"
            f" reconcile_{name}, or with 'tidemark reconcile {name}'",
        )
    if others := [item.day for item in unproven if not item.unproven_run]:
        yield Problem(
            kind="day_not_ours",
            text=f"{name}: days with rows that Tidemark did not publish: {date_ranges(others)}",
            hint="No run replaces these rows by itself: delete them, or rebuild each day on its page, also if nothing"
            f" new was archived. Or run 'tidemark reconcile {name} --from {others[0]} --to {others[-1]} --force'",
        )


def _run_problems(name: str, run: LastRun | None) -> Iterator[Problem]:
    if run is not None and (run.failed or run.verdict == "days held back"):
        yield Problem(
            kind="run_failed" if run.failed else "days_held_back",
            text=f"{name}: {run.title}. {' '.join(run.sentences[:1])}",
            hint=f"Open the stream's page or the report {run.report}, correct the cause, and rebuild the days",
        )
