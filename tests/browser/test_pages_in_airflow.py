"""Tidemark in Airflow as people use it, in Chromium. Every picture is saved below ``.tidemark/screenshots``.

Two runs are under way once a test wants them: they end while the tests in between read pages.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.airflow_form import switch_on
from tests.browser.chromium import NARROW, THEMES, Theme, violations
from tests.browser.conftest import VIEWER, OpenWindow
from tests.browser.newcomer import DAY, DELAYS, WORDS, Newcomer
from tests.browser.rides import LOST, RIDES, Rides
from tests.dags.runs import BACKFILL, wait_for_end
from tidemark.stack.airflow import USER, LocalAirflow

pytestmark = pytest.mark.timeout(1800)
COMPONENTS = ["MetaDatabase", "Scheduler", "Triggerer", "Dag Processor"]
_COLOURS = """found => found.map(one => {
    const canvas = document.createElement("canvas").getContext("2d");
    canvas.fillStyle = getComputedStyle(one).backgroundColor;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data.slice(0, 3)];
})"""


@pytest.fixture(scope="module")
def newcomer(open_window: OpenWindow, streams: Path) -> Iterator[Newcomer]:
    """A person with the tutorial, as administrator."""
    with open_window() as window:
        yield Newcomer(window=window, streams=streams)


@pytest.fixture(scope="module")
def backfill(airflow: LocalAirflow, newcomer: Newcomer) -> str:
    """The tutorial up to its backfill, which is under way; the id of its run."""
    newcomer.add_the_stream()
    frame = newcomer.wait_for_row("America/NewYork", shown=True)
    assert "time_zone: not a time zone" in frame.get_by_role("row").filter(has_text=DELAYS).first.inner_text()
    newcomer.window.screenshot("broken-definition")
    newcomer.correct_it()
    newcomer.wait_for_row("America/NewYork", shown=False)
    switch_on(newcomer.window, f"reconcile_{DELAYS}")
    dry = newcomer.backfill(dry_run=True)
    wait_for_end(airflow.api, BACKFILL, dry)
    newcomer.read_plan(dry)
    newcomer.window.screenshot("dry-run")
    return newcomer.backfill(dry_run=False)


@pytest.fixture(scope="module")
def accepted(newcomer: Newcomer, rides: Rides) -> str:
    """The loss of yesterday is accepted by the form on its page, and a run is under way; what the page says then."""
    switch_on(newcomer.window, f"reconcile_{RIDES}")
    frame = newcomer.window.open_pages(f"streams/{RIDES}/days/{rides.incomplete}")
    frame.get_by_label("Why they are lost, and who knows of it").fill("Retention was an hour, by mistake.")
    frame.get_by_label("The records are lost for good").check()
    newcomer.window.screenshot("accept-loss")
    frame.get_by_role("button", name="Accept the loss").click()
    return frame.get_by_role("status").first.inner_text()


@pytest.mark.parametrize("theme", THEMES)
def test_every_component_of_the_local_stacks_airflow_is_green_on_its_home_page(
    open_window: OpenWindow, theme: Theme
) -> None:
    with open_window(theme=theme) as window:
        window.open()
        badges = window.page.locator("h2:text-is('Health')").locator("xpath=../..").get_by_test_id("state-badge")
        badges.nth(len(COMPONENTS) - 1).wait_for()
        colours = badges.evaluate_all(_COLOURS)
        window.screenshot("home")
        assert badges.all_inner_texts() == COMPONENTS
        window.noticed.require_nothing()
    assert all(green > red + blue for red, green, blue in colours), colours


def test_a_person_finds_the_incomplete_day_and_its_cause_from_the_navigation(
    open_window: OpenWindow, rides: Rides
) -> None:
    with open_window() as window:
        window.open()
        window.page.get_by_role("link", name="Streams", exact=True).click()
        frame = window.pages()
        frame.get_by_role("link", name=RIDES, exact=True).click()
        frame.get_by_role("link", name=f"{rides.incomplete}: ").click()
        frame.get_by_role("heading", name="Actions", exact=True).wait_for()
        text = frame.locator("main").inner_text()
        window.screenshot("incomplete-day")
        assert str(rides.incomplete) in frame.locator("h1").inner_text()
        assert f"{LOST} offsets of {RIDES}-0 are lost: Kafka deleted them before they were archived." in text
        frame.get_by_role("link", name=RIDES, exact=True).click()
        frame.get_by_role("link", name="failed at step").first.click()
        frame.get_by_role("heading", name="Report", exact=True).wait_for()
        report = frame.frame_locator("iframe")
        assert f"{LOST} offsets" in report.locator("body").inner_text()
        window.screenshot("report")
        window.noticed.require_nothing()


def test_the_data_docs_and_the_certificate_of_a_day_open_by_a_click(open_window: OpenWindow, rides: Rides) -> None:
    day = f"streams/{RIDES}/days/{rides.reopened}"
    with open_window() as window:
        window.open_pages(day).get_by_role("link", name="Data Docs of Great Expectations").click()
        docs = window.pages()
        docs.wait_for_url(f"**/data-docs-{rides.reopened}.html")
        docs.get_by_text("Observed Value").first.wait_for()
        window.screenshot("data-docs")
        window.open_pages(day).get_by_role("link", name="certificate", exact=True).first.click()
        certificate = window.pages()
        certificate.get_by_role("heading", name=f"Certificate of {rides.reopened}, version 2").wait_for()
        window.screenshot("certificate")
        certificate.get_by_role("link", name="Its run", exact=True).click()
        of_run = window.pages()
        of_run.get_by_role("heading", name="Report", exact=True).wait_for()
        documents = of_run.get_by_role("list", name="Documents of the days")
        documents.get_by_role("link", name="Data Docs", exact=True).first.click()
        of_run.get_by_text("Observed Value").first.wait_for()
        window.noticed.require_nothing()


def test_the_dry_run_shows_the_day_and_starts_no_run(
    airflow: LocalAirflow, newcomer: Newcomer, backfill: str, accepted: str
) -> None:
    found = airflow.api._authorised("GET", f"/api/v2/dags/reconcile_{DELAYS}/dagRuns")["dag_runs"]
    assert [run["dag_run_id"] for run in found] in ([], [f"{DAY}__{backfill}__1"])


def test_a_quarantined_record_is_found_with_the_reason(open_window: OpenWindow, rides: Rides) -> None:
    partition, offset = rides.rejected_at
    with open_window() as window:
        frame = window.open_pages(f"streams/{RIDES}/find?partition={partition}&offset={offset}")
        assert str(rides.rejected) in frame.locator("h1").inner_text()
        assert "quarantined: no distance" in frame.locator("main").inner_text()


def test_a_person_finds_a_record_by_its_key_within_a_day(open_window: OpenWindow, rides: Rides) -> None:
    partition, offset = rides.rejected_at
    with open_window() as window:
        frame = window.open_pages(f"streams/{RIDES}/find")
        frame.get_by_label("Day", exact=True).fill(str(rides.rejected))
        frame.get_by_label("Key", exact=True).fill(f"r-{rides.rejected:%m%d}-30")
        frame.get_by_label("Key", exact=True).press("Enter")
        found = frame.get_by_role("link", name=f"partition {partition}, offset {offset}", exact=True)
        found.wait_for()
        assert "quarantined: no distance" in frame.locator("main").inner_text()
        found.click()
        frame.get_by_role("heading", name="In the archive").wait_for()


@pytest.mark.parametrize("theme", THEMES)
def test_no_page_violates_a_rule_of_axe_or_calls_another_host(
    open_window: OpenWindow, rides: Rides, accepted: str, theme: Theme
) -> None:
    found = {}
    with open_window(theme=theme) as window:
        for name, path in _paths(rides).items():
            frame = window.open_pages(path)
            found[name] = violations(frame)
            window.screenshot(name)
        window.noticed.require_nothing()
    assert not any(found.values()), found


@pytest.mark.parametrize("theme", THEMES)
def test_no_page_is_wider_than_a_telephone(open_window: OpenWindow, rides: Rides, theme: Theme) -> None:
    found = {}
    with open_window(theme=theme, width=NARROW) as window:
        for name, path in _paths(rides).items():
            frame = window.open_pages(path)
            found[name] = frame.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            window.screenshot(name)
        window.noticed.require_nothing()
    assert max(found.values()) <= 0, found


def test_the_arrow_keys_go_from_day_to_day_of_the_calendar_and_enter_opens_one(
    open_window: OpenWindow, rides: Rides
) -> None:
    with open_window() as window:
        frame = window.open_pages(f"streams/{RIDES}")
        last = frame.locator("[data-calendar] a[tabindex='0']")
        assert last.count() == 1
        last.focus()
        window.page.keyboard.press("Home")
        window.page.keyboard.press("ArrowRight")
        focused = str(frame.evaluate("document.activeElement.getAttribute('aria-label')"))
        assert focused.startswith(str(rides.reopened))
        window.page.keyboard.press("Enter")
        frame.get_by_role("heading", name="Versions", exact=True).wait_for()
        assert str(rides.reopened) in frame.locator("h1").inner_text()


@pytest.mark.parametrize("path", ["", f"streams/{RIDES}"])
def test_a_person_who_has_not_logged_in_sees_no_page(open_window: OpenWindow, path: str) -> None:
    with open_window(None) as window:
        answer = window.page.goto(f"{window.url}/tidemark/{path}")
        assert answer is not None
        assert answer.status == 401
        assert RIDES not in window.page.locator("body").inner_text()


def test_a_person_who_may_only_look_is_offered_no_action_and_refused_one(open_window: OpenWindow, rides: Rides) -> None:
    page = f"streams/{RIDES}/days/{rides.incomplete}"
    with open_window(VIEWER) as window:
        frame = window.open_pages(page)
        assert frame.get_by_role("button", name="Rebuild").count() == 0
        assert "Your user may read this DAG, but may not start runs of it." in frame.locator("main").inner_text()
        window.screenshot("viewer")
        form: dict[str, str | float | bool] = {"csrf": "none", "words": "I want to"}
        answer = window.page.request.post(f"{window.url}/tidemark/{page}/rebuild", form=form)
        assert answer.status == 403


def test_the_tutorials_day_waits_for_its_approval_and_is_complete_with_the_persons_name(
    airflow: LocalAirflow, newcomer: Newcomer, backfill: str
) -> None:
    newcomer.approve()
    text = newcomer.wait_until_complete(DELAYS, DAY).locator("main").inner_text()
    newcomer.window.screenshot("complete-day")
    assert f"{DAY} is complete" in text
    assert WORDS in text
    assert USER in text
    frame = newcomer.window.open_pages(f"streams/{DELAYS}")
    frame.get_by_label("Partition", exact=True).fill("0")
    frame.get_by_label("Offset", exact=True).fill("100")
    frame.get_by_role("button", name="Find", exact=True).click()
    frame.get_by_role("heading", name="In the day's versions").wait_for()
    record = frame.locator("main").inner_text()
    newcomer.window.screenshot("record")
    assert "published" in record
    assert f"seals/{DELAYS}/{DAY}/0001.json" in record
    wait_for_end(airflow.api, BACKFILL, backfill)
    assert airflow.api.run_state(BACKFILL, backfill) == "success"
    newcomer.window.noticed.require_nothing()


def test_a_day_whose_loss_is_accepted_is_sealed_and_says_what_it_lacks(
    newcomer: Newcomer, rides: Rides, accepted: str
) -> None:
    text = newcomer.wait_until_complete(RIDES, rides.incomplete).locator("main").inner_text()
    newcomer.window.screenshot("accepted-loss")
    assert f"{LOST}" in text
    assert "lost" in text


def test_a_task_of_a_run_leads_to_the_runs_report_and_its_days_certificate(
    airflow: LocalAirflow, newcomer: Newcomer, rides: Rides, accepted: str
) -> None:
    newcomer.wait_until_complete(RIDES, rides.incomplete)
    window = newcomer.window
    (run,) = airflow.api._authorised("GET", f"/api/v2/dags/reconcile_{RIDES}/dagRuns")["dag_runs"]
    window.open(f"dags/reconcile_{RIDES}/runs/{run['dag_run_id']}/tasks/seal")
    window.page.get_by_role("link", name="Tidemark", exact=True).click()
    window.pages().get_by_role("link", name="certificate of version 1", exact=True).wait_for()
    window.screenshot("task")


def _paths(rides: Rides) -> dict[str, str]:
    """Every kind of page."""
    partition, offset = rides.rejected_at
    return {
        "streams": "",
        "stream": f"streams/{RIDES}",
        "day": f"streams/{RIDES}/days/{rides.reopened}",
        "failed-day": f"streams/{RIDES}/days/{rides.incomplete}",
        "find": f"streams/{RIDES}/find?partition={partition}&offset={offset}",
        "find-by-key": f"streams/{RIDES}/find?day={rides.rejected}&key=r-{rides.rejected:%m%d}-30",
        "certificate": f"streams/{RIDES}/days/{rides.reopened}/certificate",
        "run": f"streams/{RIDES}/runs/{rides.runs['late'].run}",
    }
