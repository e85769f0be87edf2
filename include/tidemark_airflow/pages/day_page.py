"""The page of a day: its verdict, versions, proof, checks and runs, and the forms of what a person can do."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import partial
from typing import Any

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from tidemark.core.day_summary import latest_summaries
from tidemark.core.errors import ConfigError
from tidemark.core.layout import Layout
from tidemark.core.seal import Seal
from tidemark.definitions.stream import Stream, load_stream
from tidemark.inspect.last_run import LastRun, read_last_run, read_run
from tidemark.orchestration.steps import dag_id
from tidemark.pages.causes import RunCause
from tidemark.pages.days import DayRun, day_verdict, readers_verdict, run_of_day
from tidemark.pages.part import Part, read_parts
from tidemark.pages.proof import proof_rows
from tidemark.pages.words import number
from tidemark.reconcile.report.checks import CheckRow, check_rows
from tidemark.reconcile.results import AUDIT, PLAN, AuditResult
from tidemark.run import Run, run_name
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings, streams_dir
from tidemark.tables.certificates import day_certificates
from tidemark.tables.day_summaries import read_day_summaries
from tidemark.tables.seals import day_seals
from tidemark.tables.versions import Versions, day_versions
from tidemark_airflow.connections import open_run, task_settings
from tidemark_airflow.pages.access import PathDay, Readable, User, may
from tidemark_airflow.pages.airflow_runs import (
    AirflowRun,
    OpenQuestion,
    one_run,
    open_questions,
    recent_runs,
    unsuccessful_runs,
)
from tidemark_airflow.pages.csrf import form_token
from tidemark_airflow.pages.responses import html
from tidemark_airflow.pages.run_causes import read_cause

_SECONDS = 6.0  # above the catalog's limit for a question, so that the page shows its error
_HISTORY_DAYS = 7
_STARTED = {
    "rebuild": "The rebuild was started.",
    "accept-loss": "The rebuild that accepts the loss was started.",
    "rollback": "The rollback was started.",
    "approve": "The run was approved.",
    "reject": "The run was rejected.",
    "rebuild-instead": "The run ends, and a new one rebuilds its days.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DayChecks:
    """The checks of a day, and the run whose folder has the day's Data Docs."""

    rows: tuple[CheckRow, ...] = ()
    docs_run: str | None = None


async def show_day(
    request: Request, stream: Readable, day: PathDay, user: User, *, done: str = "", run: str = ""
) -> Response:
    """One day of a stream. ``done`` and ``run`` name what a form has just started."""
    settings, now = await run_in_threadpool(task_settings), datetime.now(UTC)
    definition = _definition(stream)
    zone, sealed_by = (definition.zone, definition.batch.sealed_by) if definition else (UTC, None)
    store, layout = ObjectStore(settings), Layout(prefix=settings.prefix, stream=stream)
    jobs: dict[str, Callable[[], Any]] = {
        "The seals": partial(day_seals, store, layout, day),
        "The certificates": partial(day_certificates, store, layout, day),
        "The last run": partial(read_last_run, store, layout),
        "The checks": partial(_checks, store, layout, stream, day),
    }
    if definition:
        jobs["The tables"] = partial(_versions, settings, definition, day)
    parts, runs, asked = await asyncio.gather(
        run_in_threadpool(read_parts, jobs, seconds=_SECONDS),
        _runs_of_day(request, user, stream, day, zone),
        open_questions(request, user, stream),
    )
    seals: Part[tuple[Seal, ...]] = parts["The seals"]
    tables: Part[Versions | None] = parts.get("The tables", Part())
    newest = None if seals.value else _newest(runs.value or ())
    last_run: Part[LastRun | None] = parts["The last run"]
    why = {
        "The day's last run": partial(_run_with_cause, store, layout, day, zone, last_run=last_run.value, newest=newest)
    }
    of_day: Part[tuple[LastRun | None, RunCause | None]] = (await run_in_threadpool(read_parts, why))[
        "The day's last run"
    ]
    own, cause = of_day.value or (None, None)
    verdict = day_verdict(day, seals.value, own, cause, zone=zone, now=now, sealed_by=sealed_by, newest=newest)
    questions = await run_in_threadpool(_of_day, stream, day, asked)
    return html(
        request,
        "day",
        stream=stream,
        day=day,
        before=day - timedelta(days=1),
        after=day + timedelta(days=1),
        verdict=readers_verdict(day, verdict, tables.value.unsealed if tables.value else None),
        last_run=last_run if last_run.error else of_day,
        seals=seals,
        certificates=parts["The certificates"],
        proof=proof_rows(seals.value[-1]) if seals.value else (),
        conserved=_conserved(seals.value[-1]) if seals.value else "",
        checks=parts["The checks"],
        runs=runs,
        questions=questions,
        started=await _started(request, user, stream, done=done, run=run),
        csrf=form_token(user),
        may_run=await run_in_threadpool(may, request, user, stream, "run"),
        may_answer=await run_in_threadpool(may, request, user, stream, "answer"),
        may_accept=not seals.value,
        tables=tables,
        **_readable(tables.value, seals.value or ()),
    )


async def _runs_of_day(
    request: Request, user: User, stream: str, day: date, zone: tzinfo
) -> Part[tuple[AirflowRun, ...]]:
    """The day's runs, the newest first: of the stream's last ones, and of all that have not succeeded."""
    recent, others = await asyncio.gather(
        recent_runs(request, user, stream, zone), unsuccessful_runs(request, user, stream, zone, day)
    )
    found = {item.run_id: item for item in (*(recent.value or ()), *(others.value or ())) if day in item.days}
    return Part(value=tuple(found.values()), error=recent.error)


def _newest(runs: Sequence[AirflowRun]) -> DayRun | None:
    return next((DayRun(name=run_name(run.run_id), state=run.state, started=run.started) for run in runs), None)


def _run_with_cause(
    store: ObjectStore, layout: Layout, day: date, zone: tzinfo, *, last_run: LastRun | None, newest: DayRun | None
) -> tuple[LastRun | None, RunCause | None]:
    """The day's last run by its report, and its cause."""
    known = last_run is not None and newest is not None and last_run.name == newest.name
    report = last_run if known else None if newest is None else read_run(store, layout, newest.name)
    run = run_of_day(day, last_run, newest, report)
    return run, read_cause(run, layout.stream, zone)


def _definition(stream: str) -> Stream | None:
    """None for a broken definition: what S3 has of the day is shown all the same."""
    try:
        return load_stream(stream, streams_dir())
    except ConfigError:
        return None


def _versions(settings: Settings, stream: Stream, day: date) -> Versions | None:
    """What the tables have of a day, None for a day that was never sealed."""
    layout = Layout(prefix=settings.prefix, stream=stream.name)
    if not day_seals(ObjectStore(settings), layout, day):
        return None
    return day_versions(settings, stream, day)


def _readable(found: Versions | None, seals: Sequence[Seal]) -> dict[str, Any]:
    """The version that readers see, those that have expired, and those that can be brought back."""
    if found is None:
        return {"shown": None, "expired": (), "restorable": ()}
    expired = tuple(item.seal.version for item in found.versions if item.expired)
    newest = max((seal.version for seal in seals), default=None)
    return {
        "shown": next((item.seal.version for item in found.versions if item.published), None),
        "expired": expired,
        "restorable": tuple(seal.version for seal in seals if seal.version not in {newest, *expired}),
    }


def _conserved(seal: Seal) -> str:
    removed = f" + {number(seal.rows_removed)} removed as duplicates by key" if seal.rows_removed else ""
    return (
        f"{number(seal.rows_read)} rows read = {number(seal.rows_published)} published"
        f" + {number(seal.rows_quarantined)} quarantined{removed}. Of archived copies of the same offsets,"
        f" {number(seal.duplicates_trimmed)} were not read."
    )


def _checks(store: ObjectStore, layout: Layout, stream: str, day: date) -> DayChecks:
    """The checks of the day's latest version, with those of the sealed days before."""
    found = latest_summaries(read_day_summaries(store, layout, day - timedelta(days=_HISTORY_DAYS - 1), day))
    rebuilt = {item.day: item.run for item in found.values()}
    if day not in rebuilt:
        return DayChecks()
    with ThreadPoolExecutor(_HISTORY_DAYS, thread_name_prefix="checks") as pool:
        audits = dict(zip(rebuilt, pool.map(partial(_audit, stream), rebuilt.values()), strict=True))
    own = audits[day]
    return DayChecks(rows=check_rows(audits), docs_run=rebuilt[day] if own and day in own.data_docs else None)


def _audit(stream: str, run: str) -> AuditResult | None:
    outcome = _run(stream, run).outcome(AUDIT)
    return None if outcome is None else outcome.result


def _run(stream: str, name: str) -> Run:
    """By the name in keys, which stays the same if it is given as an id."""
    assert run_name(name) == name
    return open_run(stream, name)


def _of_day(stream: str, day: date, found: Part[tuple[OpenQuestion, ...]]) -> Part[tuple[OpenQuestion, ...]]:
    """The open approvals of runs that plan the day."""

    def concerns(question: OpenQuestion) -> bool:
        planned = open_run(stream, question.run).outcome(PLAN)
        return bool(
            planned
            and planned.result
            and day in {*planned.result.requested, *(item.day for item in planned.result.plan.days)}
        )

    if not found.value:
        return found
    return read_parts({"The open approvals": lambda: tuple(filter(concerns, found.value or ()))})["The open approvals"]


async def _started(request: Request, user: User, stream: str, *, done: str, run: str) -> dict[str, str] | None:
    """What a form has started, if Airflow knows the run."""
    if done not in _STARTED or not run:
        return None
    dag = "tidemark_rollback" if done == "rollback" else dag_id(stream)
    found = await one_run(request, user, dag, run)
    return {"text": _STARTED[done], "state": found.state, "url": found.url} if found else None
