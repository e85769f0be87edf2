"""What a person can do with a day. Each action is one call of Airflow's own API, as that person."""

import json
from asyncio import to_thread
from dataclasses import dataclass
from datetime import UTC, date, datetime
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import parse_qs, quote, urlencode

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from fastapi import Depends, HTTPException, Request
from fastapi.responses import RedirectResponse, Response

from tidemark.core.errors import ConfigError, RequestError
from tidemark.core.manifest import digest
from tidemark.definitions.stream import load_stream
from tidemark.orchestration.run_days import require_over
from tidemark.orchestration.steps import dag_id
from tidemark.settings import streams_dir
from tidemark_airflow.notes import run_note
from tidemark_airflow.pages.access import Answerable, PathDay, Rerunnable, User
from tidemark_airflow.pages.airflow_api import call_airflow
from tidemark_airflow.pages.airflow_runs import APPROVE_TASK
from tidemark_airflow.pages.csrf import require_own_form
from tidemark_airflow.pages.responses import root_of

_BYTES_MAX = 16_384
_WORDS_MAX = 900  # so that a run's note, which also has the day, fits into Airflow's database
_DIGITS_MAX = 9


async def own_form(request: Request, user: User) -> dict[str, str]:
    """The fields of a form of these pages. Raises HTTPException 403 for another sender, 413 for too long a body."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _BYTES_MAX:
            raise HTTPException(413, f"The form is too long: at most {_BYTES_MAX:,} bytes.")
    fields = {name: values[-1] for name, values in parse_qs(body.decode(errors="replace")).items()}
    require_own_form(request, user, fields.get("csrf", ""))
    return fields


OwnForm = Annotated[dict[str, str], Depends(own_form)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DayAction:
    """What a person asks for about a day."""

    request: Request
    user: BaseUser
    stream: str
    day: date
    form: dict[str, str]

    @property
    def name(self) -> str:
        """Its name in the path."""
        return self.request.url.path.rpartition("/")[2]

    @property
    def run_id(self) -> str:
        """The id of the run to start: one for each form, however often it is sent. A page's token differs each second.

        The day comes first, as people read it.
        """
        sent = json.dumps([self.request.url.path, *sorted(self.form.items())])
        return f"{self.day}__{self.name}__{digest(sent.encode())[:12]}"

    @property
    def span(self) -> dict[str, str]:
        """The day as the form of a reconcile DAG names it."""
        return {"from_day": str(self.day), "to_day": str(self.day)}

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """Airflow's API, as this person."""
        return await call_airflow(self.request, self.user, method, path, body=body)

    @property
    def words(self) -> str:
        """Why. Raises HTTPException 422 without it."""
        words = self.form.get("words", "").strip()
        if not words or len(words) > _WORDS_MAX:
            raise HTTPException(422, f"Say why, in at most {_WORDS_MAX:,} characters: the text is saved with the run.")
        return words

    def done(self, run: str) -> Response:
        """Back to the day's page, which shows what was started: loading it again starts nothing."""
        query = urlencode({"done": self.name, "run": run})
        page = f"{root_of(self.request)}/streams/{quote(self.stream, safe='')}/days/{self.day}"
        return RedirectResponse(f"{page}?{query}", status_code=303)


def asked_run(request: Request, stream: Rerunnable, day: PathDay, user: User, form: OwnForm) -> DayAction:
    """What needs the right to start runs of the stream's DAG."""
    return DayAction(request=request, user=user, stream=stream, day=day, form=form)


def asked_answer(request: Request, stream: Answerable, day: PathDay, user: User, form: OwnForm) -> DayAction:
    """What needs the right to answer what the stream's DAG asks."""
    return DayAction(request=request, user=user, stream=stream, day=day, form=form)


RunAction = Annotated[DayAction, Depends(asked_run)]
AnswerAction = Annotated[DayAction, Depends(asked_answer)]


async def rebuild(action: RunAction) -> Response:
    """Start a reconcile run of the day."""
    await _require_over(action)
    conf = {**action.span, "force": action.form.get("force") == "yes"}
    return await _start(action, dag_id(action.stream), conf, "rebuild")


async def accept_loss(action: RunAction) -> Response:
    """Start a reconcile run of the day that seals it in spite of a loss."""
    if action.form.get("sure") != "yes":
        raise HTTPException(422, "The loss was not accepted: tick that the records are lost for good.")
    await _require_over(action)
    conf = {**action.span, "force": False, "accept_loss": True}
    return await _start(action, dag_id(action.stream), conf, "rebuild that accepts a loss")


async def rollback(action: RunAction) -> Response:
    """Start a rollback of the day."""
    version = action.form.get("version", "")
    if len(version) > _DIGITS_MAX or not version.isdecimal() or not int(version):
        raise HTTPException(422, f"There is no version {version}: expected a number from 1.")
    conf = {"stream": action.stream, "day": str(action.day), "version": int(version)}
    return await _start(action, "tidemark_rollback", conf, f"rollback to version {int(version)}")


async def approve(action: AnswerAction) -> Response:
    """Let a waiting run publish."""
    return await _answer(action, "Approve")


async def reject(action: AnswerAction) -> Response:
    """Let a waiting run end without publishing."""
    return await _answer(action, "Reject")


async def rebuild_instead(action: AnswerAction) -> Response:
    """Let a waiting run end, and a new one rebuild its days."""
    return await _answer(action, "Rebuild")


async def _require_over(action: DayAction) -> None:
    """Raises HTTPException 422 for a day that is not over."""
    try:
        stream = await to_thread(load_stream, action.stream, streams_dir())
        require_over((action.day,), now=datetime.now(UTC), zone=stream.zone)
    except (ConfigError, RequestError) as error:
        raise HTTPException(422, str(error)) from error


async def _start(action: DayAction, dag: str, conf: dict[str, Any], why: str) -> Response:
    try:
        note = await to_thread(run_note, action.stream, (action.day,), why, action.words)
    except ConfigError as error:
        raise HTTPException(422, str(error)) from error
    place = f"dags/{quote(dag, safe='')}"
    if (await action.call("GET", place))["is_paused"]:
        text = f"{dag} is paused, so no run of it would start. Unpause it in Airflow, then try again."
        raise HTTPException(409, text)
    body = {"dag_run_id": action.run_id, "logical_date": None, "conf": conf, "note": note}
    try:
        await action.call("POST", f"{place}/dagRuns", body)
    except HTTPException as refused:
        if refused.status_code != HTTPStatus.CONFLICT:  # else the form was sent before, and Airflow has its run
            raise
    return action.done(action.run_id)


async def _answer(action: DayAction, option: str) -> Response:
    run = action.form.get("run_id", "")
    if not run:
        raise HTTPException(422, "The form names no run. Load the day's page again.")
    run_place = f"dags/{quote(dag_id(action.stream), safe='')}/dagRuns/{quote(run, safe='')}"
    question = f"{run_place}/taskInstances/{APPROVE_TASK}/-1/hitlDetails"
    body = {"chosen_options": [option], "params_input": {"words": action.words}}
    # The run may have asked again since the page was loaded, about other rows.
    if (await action.call("GET", question))["created_at"] != action.form.get("asked_at"):
        raise HTTPException(
            409, "The run has asked again since you loaded the page. Load the page again, and read the new question."
        )
    await action.call("PATCH", question, body)
    return action.done(run)
