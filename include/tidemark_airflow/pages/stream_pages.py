"""The pages of all streams and of one: status, calendar and tide."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Annotated, Any

from fastapi import Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response

from tidemark.core.day_summary import DaySummary
from tidemark.core.days import day_of
from tidemark.core.errors import ConfigError, FormatError
from tidemark.core.layout import Layout
from tidemark.definitions.stream import Stream, load_stream, stream_names
from tidemark.inspect.last_run import read_last_run
from tidemark.inspect.saved_status import SavedStatus, read_saved_status
from tidemark.inspect.status import StreamStatus, read_status
from tidemark.inspect.status_rows import stream_row
from tidemark.inspect.tide import Tide, read_tide
from tidemark.pages.day_calendar import LEGEND, calendar_span, make_calendar
from tidemark.pages.needs import stream_needs
from tidemark.pages.part import Part, part_error, read_parts
from tidemark.pages.tide import tide_rows, tide_sentence
from tidemark.pages.verdicts import StreamVerdict, headline, in_order_of_need, verdict
from tidemark.pages.words import ago, listed, minute, plural
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings, streams_dir
from tidemark.tables.day_summaries import read_day_summaries
from tidemark.tables.seals import first_sealed_day
from tidemark_airflow.connections import task_settings
from tidemark_airflow.pages.access import YEARS, Readable, User, readable_streams
from tidemark_airflow.pages.airflow_runs import failed_days, unsuccessful_runs
from tidemark_airflow.pages.responses import html
from tidemark_airflow.pages.run_causes import read_cause

_STATUS_SECONDS = 10.0
_AT_ONCE = 24
# The watch checks more often.
_OLD = timedelta(minutes=20)
_START_WATCH = (
    "No status is saved yet. Unpause the DAG tidemark_watch: it saves one every few minutes, as each run does."
)


def show_streams(request: Request, user: User) -> Response:
    """All streams that the user may see."""
    now, found = datetime.now(UTC), _verdicts(user)
    rows = found.value or ()
    return html(
        request,
        "streams",
        headline=_title([row.state for row in rows]) if rows else "Streams",
        rows=found,
        as_of=_as_of([row.found_at for row in rows], now),
    )


def show_card(user: User) -> Response:
    """What the card on Airflow's home page says: nothing without a stream that the user may see."""
    found = _verdicts(user)
    rows = found.value or ()
    problem = found.error.problem if found.error else None
    needy = [{"stream": row.stream, "text": row.sentence} for row in rows if row.state != "good"]
    return JSONResponse(
        {
            "title": _title([row.state for row in rows]) if rows else "Streams" if problem else None,
            "problem": problem,
            "streams": needy[:5],
            "more": max(len(needy) - 5, 0),
        }
    )


def _verdicts(user: User) -> Part[list[StreamVerdict]]:
    """By the saved statuses. A stream without one is new, or has a broken definition, and is read now; if that fails,
    the others are there all the same."""
    names, now = readable_streams(user, stream_names(streams_dir())), datetime.now(UTC)
    saved: Part[dict[str, SavedStatus | None]] = _part("The saved status", partial(_read_saved, names))
    if saved.value is None:
        return Part(error=saved.error)
    verdicts = [verdict(item.row, item.found_at) for item in saved.value.values() if item]
    missing = [name for name, item in saved.value.items() if item is None]
    if not missing:
        return Part(value=in_order_of_need(verdicts))
    live: Part[tuple[StreamStatus, ...]] = _part(
        f"The status of {listed(missing)}", lambda: read_status(task_settings(), missing, now=now)
    )
    verdicts += [verdict(stream_row(item), now) for item in live.value or ()]
    return Part(value=in_order_of_need(verdicts), error=live.error and replace(live.error, hint=_START_WATCH))


def _part(name: str, job: Callable[[], Any]) -> Part[Any]:
    return read_parts({name: job}, seconds=_STATUS_SECONDS)[name]


def _read_saved(names: Sequence[str]) -> dict[str, SavedStatus | None]:
    settings = task_settings()
    store = ObjectStore(settings)

    layouts = [Layout(prefix=settings.prefix, stream=name) for name in names]
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="saved") as pool:
        return dict(zip(names, pool.map(partial(_saved, store), layouts), strict=True))


def _saved(store: ObjectStore, layout: Layout) -> SavedStatus | None:
    try:
        found = read_saved_status(store, layout)
        run = read_last_run(store, layout) if found else None
    except FormatError:  # of a later version, for example: read now
        return None
    # A run that waits for a person has not saved the status yet.
    waits = run is not None and run.verdict == "waiting"
    return replace(found, row=replace(found.row, last_run=run)) if found and waits else found


def _as_of(times: Sequence[datetime], now: datetime) -> str:
    """When the oldest status was found out, and what to start where that is long ago."""
    oldest = min(times, default=now)
    text = f"As of {minute(oldest)}."
    if now - oldest < _OLD:
        return text
    return f"{text} That is {ago(oldest, now)}: unpause the DAG tidemark_watch, which checks every few minutes."


def _title(states: list[str]) -> str:
    needy = sum(state != "good" for state in states)
    return f"{plural(needy, 'stream needs', 'streams need')} a person." if needy else "Every stream is complete."


async def show_stream(
    request: Request,
    stream: Readable,
    user: User,
    year: Annotated[int | None, Query(ge=YEARS.start, lt=YEARS.stop)] = None,
    *,
    check: bool = False,
) -> Response:
    """One stream. ``check``: its status is found out now, even if a recent one is saved."""
    now, settings = datetime.now(UTC), await run_in_threadpool(task_settings)
    store, layout = ObjectStore(settings), Layout(prefix=settings.prefix, stream=stream)
    definition = await run_in_threadpool(read_definition, stream)
    zone = definition.value.zone if definition.value else UTC
    today = day_of(now, zone)
    first, last = calendar_span(today, year)
    jobs: dict[str, Any] = {
        "The status": partial(_status, settings, store, layout, now, saved=definition.error is None and not check),
        "The calendar": partial(_sealed_days, store, layout, first, last),
    }
    if definition.value:
        jobs["The tide"] = partial(read_tide, settings.kafka, store, layout, definition.value, now=now)
    parts, runs = await asyncio.gather(
        run_in_threadpool(read_parts, jobs, seconds=_STATUS_SECONDS),
        unsuccessful_runs(request, user, stream, zone, first),
    )
    status: Part[SavedStatus] = parts["The status"]
    if status.error:  # an older one is shown beside the error
        saved = await run_in_threadpool(read_parts, {"The saved status": partial(_saved, store, layout)})
        status = replace(status, value=saved["The saved status"].value)
    row = status.value.row if status.value else None
    unknown = "unknown", f"The state of {stream} is not known."
    state, title = (verdict(row, now).state, headline(row)) if row else unknown
    if state == "good" and status.error:  # that all was well says nothing of now
        state, title = unknown
    sealed, last_run = parts["The calendar"], row.last_run if row else None
    first_sealed, summaries = sealed.value or (None, ())
    days = row.days if row else ()
    causes = await run_in_threadpool(read_parts, {"The cause": partial(read_cause, last_run, stream, zone)})
    calendar = make_calendar(
        summaries,
        days,
        last_run,
        today=today,
        year=year,
        first_sealed=first_sealed,
        failed=failed_days(runs.value or ()),
    )
    return html(
        request,
        "stream",
        stream=stream,
        description=getattr(definition.value, "description", "") or "",
        status=status,
        state=state,
        headline=title,
        needs=stream_needs(row, causes["The cause"].value) if row else (),
        last_run=last_run,
        calendar=Part(value=None if sealed.error else calendar, error=sealed.error),
        runs=runs,
        LEGEND=LEGEND,
        year=year,
        asked={},
        **_tide_values(parts.get("The tide", Part(error=definition.error))),
    )


def _status(settings: Settings, store: ObjectStore, layout: Layout, now: datetime, *, saved: bool) -> SavedStatus:
    """The saved status if it is recent, else one of now: that reads the archive, which takes seconds after years."""
    known = _saved(store, layout) if saved else None
    if known and now - known.found_at < _OLD:
        return known
    (found,) = read_status(settings, [layout.stream], now=now)
    return SavedStatus(found_at=now, row=stream_row(found), tide=found.tide)


def _sealed_days(
    store: ObjectStore, layout: Layout, first: date, last: date
) -> tuple[date | None, tuple[DaySummary, ...]]:
    """The first sealed day of all, and the summaries of a span."""
    return first_sealed_day(store, layout), read_day_summaries(store, layout, first, last)


def show_tide(request: Request, stream: Readable) -> Response:
    """The tide alone, which the stream's page loads again every few seconds."""
    settings = task_settings()
    store, layout = ObjectStore(settings), Layout(prefix=settings.prefix, stream=stream)
    definition = read_definition(stream)
    tide: Part[Tide] = Part(error=definition.error)
    if definition.value:
        job = partial(read_tide, settings.kafka, store, layout, definition.value, now=datetime.now(UTC))
        tide = read_parts({"The tide": job})["The tide"]
    return html(request, "tide", **_tide_values(tide))


def _tide_values(tide: Part[Tide]) -> dict[str, Any]:
    found = tide.value
    rows = tide_rows(found.logs, found.alarm_hours) if found else ()
    sentence = tide_sentence(rows) if found else ""
    return {"tide": tide, "rows": rows, "sentence": sentence, "as_of": minute(found.found_at) if found else ""}


def read_definition(stream: str) -> Part[Stream]:
    """The stream's definition."""
    try:
        return Part(value=load_stream(stream, streams_dir()))
    except ConfigError as error:
        return Part(error=part_error(error))
