"""A day that is not sealed says why, whatever the stream's last run did."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import date
from typing import Any

import httpx
import pytest

from tests.batch.logs import Log
from tests.web.conftest import PagesServer
from tests.web.test_pages import text_of
from tidemark.run import run_name

pytestmark = pytest.mark.services
FAILED, RUNNING, SILENT = date(2012, 6, 4), date(2012, 6, 5), date(2012, 6, 6)


@pytest.fixture(scope="module")
def start(pages: PagesServer, shown: Log) -> Callable[[date, str, str], None]:
    """Starts a run of a day in Airflow, and sets its state."""
    place = f"{pages.url}/api/v2/dags/reconcile_{shown.stream.name}/dagRuns"
    headers = {"Authorization": f"Bearer {pages.tokens['ada']}"}

    def started(day: date, name: str, state: str) -> None:
        form = {"from_day": str(day), "to_day": str(day)}
        body = {"dag_run_id": name, "logical_date": None, "conf": form}
        httpx.post(place, json=body, headers=headers, timeout=60).raise_for_status()
        # Airflow's API lets the tasks of a failed run end first, and here nothing runs them.
        with closing(sqlite3.connect(pages.home / "airflow.db")) as database, database:
            assert database.execute("update dag_run set state = ? where run_id = ?", (state, name)).rowcount == 1

    return started


def report(log: Log, name: str, error: str) -> None:
    """The report of a run that failed before it had planned a day."""
    verdict = {"status": "failed", "title": "It failed at step wait", "sentences": [error]}
    key = log.layout.run_key(run_name(name), "report.json")
    result: dict[str, Any] = {"run": run_name(name), "days": [], "unchanged": [], "verdict": verdict, "html_key": key}
    log.store.put(key, json.dumps({"started_at": "2012-06-05T06:00:00+00:00", "result": result}).encode())


def test_a_days_page_and_its_calendar_show_the_failure_of_the_days_own_run(
    pages: PagesServer, shown: Log, start: Callable[[date, str, str], None]
) -> None:
    start(FAILED, "2012-06-04__failed", "failed")
    report(shown, "2012-06-04__failed", "Kafka does not answer: expected an answer")
    start(RUNNING, "2012-06-05__queued", "queued")
    start(SILENT, "2012-06-06__silent", "failed")
    of_stream = f"/streams/{shown.stream.name}"
    page = text_of(pages, f"{of_stream}/days/{FAILED}")
    assert f"<h1>{FAILED} is missing: its last run failed.</h1>" in page
    assert "<p>Kafka does not answer.</p>" in page
    assert f'href="/tidemark{of_stream}/runs/2012-06-04__failed">The report of that run' in page
    assert f"<h1>A run of {RUNNING} is queued since 20" in text_of(pages, f"{of_stream}/days/{RUNNING}")
    assert "It saved no report." in text_of(pages, f"{of_stream}/days/{SILENT}")
    calendar = text_of(pages, f"{of_stream}?year=2012")
    for day in (FAILED, SILENT):
        assert f'href="/tidemark{of_stream}/days/{day}" title="{day}: not sealed: its last run failed"' in calendar
    assert f'/days/{RUNNING}"' not in calendar
