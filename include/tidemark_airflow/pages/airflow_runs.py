"""A stream's runs and open approvals, as Airflow's API gives them to the user of a page."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, tzinfo
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from fastapi import HTTPException, Request

from tidemark.core.errors import RequestError
from tidemark.core.text import from_markdown
from tidemark.orchestration.run_days import run_days
from tidemark.orchestration.steps import dag_id
from tidemark.pages.part import Part, PartError
from tidemark.run import run_name
from tidemark_airflow.pages.airflow_api import call_airflow
from tidemark_airflow.pages.responses import root_of

RUNS_SHOWN = 100
APPROVE_TASK = "approve"
_DIGEST = re.compile(r"-[0-9a-f]{8}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class AirflowRun:
    """A run of a DAG. ``days`` are those of its form, or else of its interval; empty if it names none.

    ``started`` is when it was queued if it is still queued.
    """

    run_id: str
    state: str
    started: datetime | None
    user: str
    note: str
    url: str
    days: tuple[date, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenQuestion:
    """What a run asks a person before it publishes. ``findings`` are the failed checks and losses in words.

    ``asked_at`` differs for an earlier or later question of the same run.
    """

    run: str
    asked_at: str
    subject: str
    findings: tuple[str, ...]
    url: str


async def recent_runs(request: Request, user: BaseUser, stream: str, zone: tzinfo) -> Part[tuple[AirflowRun, ...]]:
    """The last runs of the stream's DAG, the newest first."""
    return await _runs(request, user, stream, zone, {})


async def unsuccessful_runs(
    request: Request, user: BaseUser, stream: str, zone: tzinfo, first: date
) -> Part[tuple[AirflowRun, ...]]:
    """Of the runs since a day began those that are queued, are running or have failed, the newest first. They are few:
    one question finds them, however many runs there are."""
    query = {"state": ["queued", "running", "failed"], "run_after_gte": f"{first}T00:00:00Z"}
    return await _runs(request, user, stream, zone, query)


def failed_days(runs: Iterable[AirflowRun]) -> frozenset[date]:
    """The days whose newest run failed. ``runs`` are the newest first."""
    states: dict[date, str] = {}
    for run in runs:
        for day in run.days:
            states.setdefault(day, run.state)
    return frozenset(day for day, state in states.items() if state == "failed")


async def _runs(
    request: Request, user: BaseUser, stream: str, zone: tzinfo, query: Mapping[str, Any]
) -> Part[tuple[AirflowRun, ...]]:
    path = f"dags/{quote(dag_id(stream), safe='')}/dagRuns"
    query = {"order_by": "-run_after", "limit": RUNS_SHOWN, **query}
    try:
        found = await call_airflow(request, user, "GET", path, query=query)
    except HTTPException as error:
        return Part(error=refusal(error, dag_id(stream)))
    return Part(value=tuple(_run(request, item, zone) for item in found["dag_runs"]))


async def run_of_name(request: Request, user: BaseUser, stream: str, name: str, zone: tzinfo) -> AirflowRun | None:
    """Airflow's run whose name in keys this is, or whose id. Raises HTTPException if Airflow refuses to say."""
    path = f"dags/{quote(dag_id(stream), safe='')}/dagRuns"
    # A name has "-" in place of what keys can't hold, and may end with a digest of the id.
    pattern = _DIGEST.sub("", name).replace("-", "%")
    found = await call_airflow(request, user, "GET", path, query={"run_id_pattern": pattern, "limit": RUNS_SHOWN})
    runs = (_run(request, item, zone) for item in found["dag_runs"])
    return next((item for item in runs if name in {item.run_id, run_name(item.run_id)}), None)


async def one_run(request: Request, user: BaseUser, dag: str, run_id: str) -> AirflowRun | None:
    """A run by its id; None if Airflow does not know it, or the user may not see it."""
    try:
        found = await call_airflow(request, user, "GET", f"dags/{quote(dag, safe='')}/dagRuns/{quote(run_id, safe='')}")
    except HTTPException:
        return None
    return _run(request, found, UTC)


async def open_questions(request: Request, user: BaseUser, stream: str) -> Part[tuple[OpenQuestion, ...]]:
    """The approvals that the stream's runs wait for."""
    path = f"dags/{quote(dag_id(stream), safe='')}/dagRuns/~/hitlDetails"
    try:
        found = await call_airflow(request, user, "GET", path, query={"response_received": False, "limit": RUNS_SHOWN})
    except HTTPException as error:
        return Part(error=refusal(error, dag_id(stream)))
    waiting = [item for item in found["hitl_details"] if item["task_instance"]["task_id"] == APPROVE_TASK]
    return Part(value=tuple(_question(request, item) for item in waiting))


def refusal(error: HTTPException, dag: str) -> PartError:
    """What Airflow's API answered, as a part of a page."""
    if error.status_code == HTTPStatus.NOT_FOUND:
        return PartError(
            problem=f"Airflow does not know the DAG {dag}",
            hint="Airflow has not parsed the DAG's file since the stream was added, or failed to. Its home page shows"
            " import errors.",
        )
    rights = error.status_code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
    hint = "Your user may need more rights in Airflow." if rights else "Load the page again."
    return PartError(problem=f"Airflow answered {error.status_code}", found=str(error.detail), hint=hint)


def airflow_url(request: Request, path: str) -> str:
    """A page of Airflow itself, from a page of ours."""
    return f"{root_of(request).rpartition('/')[0]}/{path}"


def _run(request: Request, item: Mapping[str, Any], zone: tzinfo) -> AirflowRun:
    started = item.get("start_date") or item.get("queued_at") or item.get("run_after")
    return AirflowRun(
        run_id=item["dag_run_id"],
        state=item["state"],
        started=datetime.fromisoformat(started) if started else None,
        user=item.get("triggering_user_name") or "",
        note=item.get("note") or "",
        url=airflow_url(request, f"dags/{quote(item['dag_id'], safe='')}/runs/{quote(item['dag_run_id'], safe='')}"),
        days=_days(item, zone),
    )


def _days(item: Mapping[str, Any], zone: tzinfo) -> tuple[date, ...]:
    form = item.get("conf") or {}
    start, end = item.get("data_interval_start"), item.get("data_interval_end")
    interval = (datetime.fromisoformat(start), datetime.fromisoformat(end)) if start and end else None
    try:
        return run_days(from_day=form.get("from_day"), to_day=form.get("to_day"), interval=interval, zone=zone)
    except (RequestError, TypeError):  # a form that the run refused, too
        return ()


def _question(request: Request, item: Mapping[str, Any]) -> OpenQuestion:
    task = item["task_instance"]
    place = f"dags/{quote(task['dag_id'], safe='')}/runs/{quote(task['dag_run_id'], safe='')}"
    return OpenQuestion(
        run=task["dag_run_id"],
        asked_at=item["created_at"],
        subject=item["subject"],
        # Markdown: the findings are its list, and what the answers do is said on the page.
        findings=tuple(
            from_markdown(line[2:]) for line in (item.get("body") or "").splitlines() if line.startswith("- ")
        ),
        url=airflow_url(request, f"{place}/tasks/{quote(task['task_id'], safe='')}"),
    )
