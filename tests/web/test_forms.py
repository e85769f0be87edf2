"""What a person does with a day by a form: Airflow gets one run, in that person's name, and only from our own forms."""

import re
from typing import Any

import httpx
import pytest

from tests.batch.logs import MONDAY, Log
from tests.web.conftest import PagesServer

pytestmark = pytest.mark.services


def day_path(log: Log) -> str:
    return f"/streams/{log.stream.name}/days/{MONDAY}"


def token(client: httpx.Client, log: Log) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', client.get(day_path(log)).text)
    assert found is not None
    return found[1]


def runs(pages: PagesServer, dag: str) -> dict[str, dict[str, Any]]:
    headers = {"Authorization": f"Bearer {pages.tokens['ada']}"}
    found = httpx.get(f"{pages.url}/api/v2/dags/{dag}/dagRuns", headers=headers, timeout=60).json()
    return {item["dag_run_id"]: item for item in found["dag_runs"]}


def page_after(client: httpx.Client, answer: httpx.Response) -> str:
    """The page that a form leads to."""
    assert answer.status_code == 303, answer.text
    return client.get(answer.headers["location"].removeprefix("/tidemark")).text


@pytest.fixture
def reconcile(shown: Log) -> str:
    return f"reconcile_{shown.stream.name}"


@pytest.mark.conformance(27)
@pytest.mark.parametrize("action", ["rebuild", "accept-loss", "rollback", "approve", "reject", "rebuild-instead"])
def test_a_form_without_its_token_or_from_another_site_starts_nothing(
    pages: PagesServer, shown: Log, reconcile: str, action: str
) -> None:
    before = runs(pages, reconcile), runs(pages, "tidemark_rollback")
    fields = {"words": "why", "sure": "yes", "version": "1", "run_id": "run-1"}
    with pages.client("ned") as user, pages.client("ada") as another:
        good, of_another = token(user, shown), token(another, shown)
        refused = [
            user.post(f"{day_path(shown)}/{action}", data=fields),
            user.post(f"{day_path(shown)}/{action}", data={**fields, "csrf": good[:-2]}),
            user.post(f"{day_path(shown)}/{action}", data={**fields, "csrf": of_another}),
            *(
                user.post(f"{day_path(shown)}/{action}", data={**fields, "csrf": good}, headers=headers)
                for headers in (
                    {"Sec-Fetch-Site": "cross-site"},
                    {"Sec-Fetch-Site": "same-site"},
                    {"Origin": "https://example.com"},
                    {"Origin": "null"},
                )
            ),
        ]
    assert [answer.status_code for answer in refused] == [403] * 7
    assert all("Load the page again" in answer.text for answer in refused)
    assert (runs(pages, reconcile), runs(pages, "tidemark_rollback")) == before


def test_a_rebuild_starts_one_run_in_the_users_name_with_the_words_in_its_note(
    pages: PagesServer, shown: Log, reconcile: str
) -> None:
    before = runs(pages, reconcile)
    with pages.client("ned") as user:
        form = {"csrf": token(user, shown), "words": "a <b>late</b> file", "force": "yes"}
        answer = user.post(f"{day_path(shown)}/rebuild", data=form, headers={"Sec-Fetch-Site": "same-origin"})
        page = page_after(user, answer)
    (run,) = (item for name, item in runs(pages, reconcile).items() if name not in before)
    assert run["conf"] == {"from_day": str(MONDAY), "to_day": str(MONDAY), "force": True}
    note = f"{MONDAY}, America/New_York: rebuild: a <b>late</b> file"
    assert (run["triggering_user_name"], run["note"], run["logical_date"]) == ("ned", note, None)
    assert run["dag_run_id"].startswith(f"{MONDAY}__rebuild__")
    assert "The rebuild was started." in page
    assert f"/dags/{reconcile}/runs/{run['dag_run_id']}" in page
    assert "a &lt;b&gt;late&lt;/b&gt; file" in page


def test_a_form_that_is_sent_twice_starts_one_run_and_leads_to_it_both_times(
    pages: PagesServer, shown: Log, reconcile: str
) -> None:
    before = runs(pages, reconcile)
    with pages.client("ned") as user:
        form = {"csrf": token(user, shown), "words": "clicked twice"}
        first, second = (user.post(f"{day_path(shown)}/rebuild", data=form) for _ in range(2))
        assert "The rebuild was started." in page_after(user, second)
        other = user.post(f"{day_path(shown)}/rebuild", data={**form, "words": "another reason"})
    (run,) = (item for name, item in runs(pages, reconcile).items() if name not in before and "clicked" in item["note"])
    assert first.headers["location"] == second.headers["location"] != other.headers["location"]
    assert first.headers["location"].endswith(f"run={run['dag_run_id']}")


def test_a_rollback_and_an_accepted_loss_start_their_runs(pages: PagesServer, shown: Log, reconcile: str) -> None:
    with pages.client("ned") as user:
        form = {"csrf": token(user, shown), "words": "why", "version": "1", "sure": "yes"}
        for action in ("rollback", "accept-loss"):
            answer = user.post(f"{day_path(shown)}/{action}", data=form)
            assert "was started." in page_after(user, answer)
    (rolled_back,) = runs(pages, "tidemark_rollback").values()
    assert rolled_back["conf"] == {"stream": shown.stream.name, "day": str(MONDAY), "version": 1}
    accepted = [item["conf"] for name, item in runs(pages, reconcile).items() if "__accept-loss__" in name]
    day = str(MONDAY)
    assert accepted == [{"from_day": day, "to_day": day, "force": False, "accept_loss": True}]


@pytest.mark.parametrize(
    ("action", "change", "text"),
    [
        ("rebuild", {"words": " "}, "Say why"),
        ("rebuild", {"words": "x" * 901}, "Say why"),
        ("accept-loss", {"sure": ""}, "tick that the records are lost"),
        ("rollback", {"version": "one"}, "There is no version one"),
        ("approve", {"run_id": ""}, "names no run"),
        ("approve", {"run_id": "no-such-run"}, "no-such-run"),
    ],
)
def test_a_form_that_lacks_something_is_answered_with_what_it_lacks(
    pages: PagesServer, shown: Log, reconcile: str, action: str, change: dict[str, str], text: str
) -> None:
    before = runs(pages, reconcile)
    with pages.client("ned") as user:
        fields = {"csrf": token(user, shown), "words": "why", "sure": "yes", "version": "1", "run_id": "r", **change}
        answer = user.post(f"{day_path(shown)}/{action}", data=fields)
    assert answer.status_code in {404, 422}
    assert text in answer.text
    assert runs(pages, reconcile) == before


@pytest.mark.parametrize("action", ["rebuild", "accept-loss"])
def test_a_day_that_is_not_over_is_refused(pages: PagesServer, shown: Log, reconcile: str, action: str) -> None:
    before = runs(pages, reconcile)
    with pages.client("ned") as user:
        form = {"csrf": token(user, shown), "words": "why", "sure": "yes"}
        answer = user.post(f"/streams/{shown.stream.name}/days/2199-01-01/{action}", data=form)
    assert (answer.status_code, runs(pages, reconcile)) == (422, before)
    assert "the last day is not over" in answer.text


def test_a_paused_dag_is_named_and_no_run_waits_in_it(pages: PagesServer, shown: Log, reconcile: str) -> None:
    headers, path = {"Authorization": f"Bearer {pages.tokens['ada']}"}, f"{pages.url}/api/v2/dags/{reconcile}"
    before = runs(pages, reconcile)
    httpx.patch(path, json={"is_paused": True}, headers=headers, timeout=60).raise_for_status()
    try:
        with pages.client("ned") as user:
            form = {"csrf": token(user, shown), "words": "why"}
            answer = user.post(f"{day_path(shown)}/rebuild", data=form)
    finally:
        httpx.patch(path, json={"is_paused": False}, headers=headers, timeout=60).raise_for_status()
    assert (answer.status_code, runs(pages, reconcile)) == (409, before)
    assert f"{reconcile} is paused" in answer.text
