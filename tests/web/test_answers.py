"""A person's answer to what a run asks, and what Airflow's API is not asked at all; Airflow's side is a stand-in."""

import asyncio
from datetime import date
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.api_fastapi.core_api.datamodels.plugins import ExternalViewResponse
from fastapi import HTTPException, Response
from starlette.requests import Request

from tidemark_airflow import connections
from tidemark_airflow.pages import actions, csrf, find_page
from tidemark_airflow.pages.access import path_day
from tidemark_airflow.pages.airflow_api import call_airflow
from tidemark_airflow.plugin import TidemarkPlugin

ASKED_AT = "2026-11-26T07:40:48Z"
QUESTION = "dags/reconcile_flights/dagRuns/run%2F1/taskInstances/approve/-1/hitlDetails"


def action(name: str, **form: str) -> actions.DayAction:
    scope = {"type": "http", "method": "POST", "path": f"/{name}", "headers": [], "root_path": "/tidemark"}
    user: Any = None
    return actions.DayAction(
        request=Request(scope), user=user, stream="flights", day=date(2013, 1, 14), form={"words": "why", **form}
    )


@pytest.mark.parametrize(("asked_at", "sent"), [(ASKED_AT, True), ("2026-11-26T07:00:00Z", False), (None, False)])
def test_only_the_question_that_the_page_has_shown_is_answered(
    monkeypatch: pytest.MonkeyPatch, asked_at: str | None, sent: bool
) -> None:
    calls = []

    async def call(_request: Any, _user: Any, method: str, path: str, **_: Any) -> Any:
        calls.append((method, path))
        return {"created_at": ASKED_AT}

    monkeypatch.setattr(actions, "call_airflow", call)
    form = {"run_id": "run/1", **({"asked_at": asked_at} if asked_at else {})}
    if sent:
        asyncio.run(actions.approve(action("approve", **form)))
    else:
        with pytest.raises(HTTPException, match="409: The run has asked again"):
            asyncio.run(actions.approve(action("approve", **form)))
    assert (("PATCH", QUESTION) in calls) == sent


def test_dags_runs_and_tasks_have_a_tab_and_the_navigation_an_entry() -> None:
    views = [ExternalViewResponse.model_validate(item) for item in TidemarkPlugin.external_views]
    assert {item.destination: item.href for item in views} == {
        "nav": "tidemark/",
        "dag": "tidemark/dags/{DAG_ID}",
        "dag_run": "tidemark/dags/{DAG_ID}/runs/{RUN_ID}",
        "task_instance": "tidemark/dags/{DAG_ID}/runs/{RUN_ID}",
    }
    assert len({item.url_route for item in views}) == len(views)


@pytest.mark.parametrize("day", ["0001-01-01", "9999-12-31", "20130114", "2013-W03-1", "2013-02-30", "today"])
def test_a_day_without_a_neighbour_or_in_another_form_is_not_found(day: str) -> None:
    with pytest.raises(HTTPException, match="404: There is no day"):
        path_day(day)


def test_a_version_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(HTTPException, match="422: There is no version"):
        asyncio.run(actions.rollback(action("rollback", version="9" * 5000)))


@pytest.mark.parametrize("run", [".", ".."])
def test_an_id_that_would_lead_to_another_place_of_airflows_api_is_not_found(run: str) -> None:
    with pytest.raises(HTTPException, match="404: Airflow knows nothing at"):
        asyncio.run(call_airflow(action("approve").request, None, "GET", f"dags/x/dagRuns/{run}"))  # type: ignore[arg-type]


@pytest.mark.parametrize("sender", [b"null", b"", b"http://[", b"https://\xfc.example", b"https://example.com"])
@pytest.mark.parametrize(
    ("base", "own"), [("/", b"http://airflow.example:80"), ("https://a.example/air/", b"https://a.example")]
)
def test_a_form_whose_sender_is_hidden_or_another_is_refused(
    monkeypatch: pytest.MonkeyPatch, base: str, own: bytes, sender: bytes
) -> None:
    user: Any = SimpleNamespace(get_id=lambda: "ned")

    def sent_from(origin: bytes) -> None:
        headers = [(b"host", b"airflow.example:80"), (b"origin", origin)]
        request = Request({"type": "http", "method": "POST", "path": "/rebuild", "headers": headers})
        csrf.require_own_form(request, user, csrf.form_token(user))

    monkeypatch.setattr(csrf, "base_url", lambda: base)
    sent_from(own)
    with pytest.raises(HTTPException, match=r"403: The form was not accepted\. .* Load the page again\."):
        sent_from(sender)


def test_while_a_search_takes_long_the_server_answers_others(monkeypatch: pytest.MonkeyPatch) -> None:
    other = Event()

    def search(*_: Any) -> tuple[str, find_page.KeyAnswer]:
        return f"Answered meanwhile: {other.wait(30)}.", find_page.KeyAnswer(refused="no search")

    async def both() -> Response:
        page = asyncio.create_task(find_page.show_find(action("find").request, "flights", day="2013-01-14", key="k"))
        await asyncio.sleep(0)  # the search begins
        other.set()
        return await page

    monkeypatch.setattr(find_page, "_by_key", search)
    assert b"<h1>Answered meanwhile: True.</h1>" in bytes(asyncio.run(both()).body)


def test_a_process_that_lives_long_reads_its_settings_again_each_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    keys, now = iter(["old key", "new key"]), [1e9 * 60]
    monkeypatch.setattr(connections, "resolve", lambda _: SimpleNamespace(settings=next(keys)))
    monkeypatch.setattr(connections, "_secrets", lambda _: ())
    monkeypatch.setattr(connections, "monotonic", lambda: now[0])
    read: list[Any] = [connections.task_settings(), connections.task_settings()]
    now[0] += 60
    assert [*read, connections.task_settings()] == ["old key", "old key", "new key"]
