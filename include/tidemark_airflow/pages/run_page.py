"""The page of a run with its report, the tabs that Airflow shows on DAGs and runs, and stored documents."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, tzinfo
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import HTTPException, Path, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse, Response

from tidemark.core.errors import ConfigError
from tidemark.core.layout import Layout, parse_data_docs_name
from tidemark.definitions.stream import load_stream
from tidemark.inspect.last_run import LastRun, read_run
from tidemark.orchestration.steps import dag_id
from tidemark.pages.part import Part, read_parts
from tidemark.reconcile.results import AUDIT, SEAL
from tidemark.run import run_name
from tidemark.s3 import ObjectStore
from tidemark.settings import streams_dir
from tidemark_airflow.connections import open_run, task_settings
from tidemark_airflow.pages.access import Readable, ReadableDag, User, stream_of_dag
from tidemark_airflow.pages.airflow_runs import AirflowRun, refusal, run_of_name
from tidemark_airflow.pages.responses import STORED_POLICY, html, root_of

INDEX = "index.html"
_HTML = "text/html; charset=utf-8"
_ARTEFACTS = {"report.html": _HTML, "report.json": "application/json"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DayDocuments:
    """What a run has of a day: its Data Docs, and the ``version`` that it sealed, whose certificate can be opened."""

    day: date
    data_docs: bool
    version: int | None


async def show_run(request: Request, stream: Readable, run: Annotated[str, Path()], user: User) -> Response:
    """One run of a stream, by its name in keys or by Airflow's id. The index that reports link is the stream's page."""
    if run == INDEX:
        return RedirectResponse(f"{root_of(request)}/streams/{quote(stream, safe='')}", status_code=303)
    settings = await run_in_threadpool(task_settings)
    layout = Layout(prefix=settings.prefix, stream=stream)
    name = run_name(run)
    jobs: dict[str, partial[Any]] = {
        "The report": partial(read_run, ObjectStore(settings), layout, name),
        "The documents": partial(_documents, stream, name),
    }
    parts = await run_in_threadpool(read_parts, jobs)
    report: Part[LastRun | None] = parts["The report"]
    known = await _in_airflow(request, user, stream, run)
    if report.value is None and report.error is None and known.value is None and known.error is None:
        raise HTTPException(404, f"There is no run {run} of stream {stream}, neither in S3 nor in Airflow.")
    found = report.value
    return html(
        request,
        "run",
        stream=stream,
        run=run,
        key=name,
        headline=f"{found.title}." if found else f"Run {run}",
        days=found.days if found else known.value.days if known.value else (),
        report=report,
        documents=parts["The documents"],
        dag_run=known,
    )


def _documents(stream: str, name: str) -> tuple[DayDocuments, ...]:
    """Of each day that has any, by what the run's steps have saved."""
    run = open_run(stream, name)
    audit, seal = run.outcome(AUDIT), run.outcome(SEAL)
    docs = set(audit.result.data_docs) if audit and audit.result else set()
    versions = {item.day: item.version for item in seal.result.seals} if seal and seal.result else {}
    return tuple(
        DayDocuments(day=day, data_docs=day in docs, version=versions.get(day)) for day in sorted({*docs, *versions})
    )


async def _in_airflow(request: Request, user: User, stream: str, run: str) -> Part[AirflowRun]:
    zone: tzinfo = UTC
    with suppress(ConfigError):  # a broken definition
        zone = load_stream(stream, streams_dir()).zone
    try:
        return Part(value=await run_of_name(request, user, stream, run, zone))
    except HTTPException as error:
        return Part(error=refusal(error, dag_id(stream)))


def show_artefact(stream: Readable, run: Annotated[str, Path()], name: Annotated[str, Path()]) -> Response:
    """A stored document of a run: its report, or a day's Data Docs."""
    settings = task_settings()
    layout = Layout(prefix=settings.prefix, stream=stream)
    kind = _HTML if parse_data_docs_name(name) else _ARTEFACTS.get(name)
    body = ObjectStore(settings).get(layout.run_key(run_name(run), name)) if kind else None
    if body is None:
        raise HTTPException(404, f"Run {run} of stream {stream} has no {name}.")
    return Response(body, media_type=kind, headers={"Content-Security-Policy": STORED_POLICY})


def show_dag(request: Request, dag: ReadableDag) -> Response:
    """The tab of a DAG: its stream's page."""
    return RedirectResponse(f"{root_of(request)}/streams/{_stream(dag)}", status_code=303)


def show_dag_run(request: Request, dag: ReadableDag, run_id: Annotated[str, Path()]) -> Response:
    """The tab of a DAG's run: its page with the report."""
    return RedirectResponse(f"{root_of(request)}/streams/{_stream(dag)}/runs/{run_name(run_id)}", status_code=303)


def _stream(dag: str) -> str:
    stream = stream_of_dag(dag)
    if stream is None:
        raise HTTPException(404, f"{dag} reconciles no stream. Use this tab on the DAGs reconcile_<stream>.")
    return stream
