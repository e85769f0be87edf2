"""The page of a report in Chromium: light, dark, wide, narrow and on paper.

The pictures are below ``.tidemark/screenshots``.
"""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.chromium import NARROW, SCREENSHOTS, THEMES, WIDE, Theme, chromium, violations, window
from tests.report.samples import DAY, broken, checks, delivered, history, make_run, summary
from tidemark.reconcile.audit.data_docs import render_data_docs
from tidemark.reconcile.report.index import index_rows, render_index
from tidemark.reconcile.report.page import render
from tidemark.reconcile.report.report import make_report

pytestmark = pytest.mark.services
RUNS = {"complete": delivered, "broken": broken}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a page for each of the runs."""
    found = tmp_path_factory.mktemp("reports")
    for name, outcomes in RUNS.items():
        page = render(make_report(make_run(), outcomes(), history=history()))
        (found / f"{name}.html").write_text(page, encoding="utf-8")
    days = [summary(DAY - timedelta(days=number)) for number in range(5) if number != 2]
    index = render_index(make_report(make_run(), broken()), index_rows(days, DAY), None)
    (found / "index.html").write_text(index, encoding="utf-8")
    (found / "docs.html").write_text(render_data_docs(checks(DAY, failing=True), "flights"), encoding="utf-8")
    return found


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", [*RUNS, "index", "docs"])
def test_a_report_is_accessible_and_asks_no_other_host(
    browser: Browser, folder: Path, name: str, theme: Theme, width: int
) -> None:
    with window(browser, folder.as_uri(), theme=theme, width=width) as own:
        own.open(f"{name}.html")
        own.page.screenshot(path=SCREENSHOTS / f"report-{name}-{theme}-{width}.png", full_page=True)
        assert own.page.evaluate("document.documentElement.scrollWidth") == width
        assert own.page.evaluate("performance.getEntriesByType('resource').length") == 0
        assert violations(own.page.main_frame) == []
        own.noticed.require_nothing()


@pytest.mark.parametrize("theme", THEMES)
def test_a_printed_report_is_dark_on_white(browser: Browser, folder: Path, theme: Theme) -> None:
    with window(browser, folder.as_uri(), theme=theme) as own:
        own.open("complete.html")
        own.page.emulate_media(media="print", color_scheme=theme)
        colours = own.page.evaluate(
            "() => [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
        )
        assert colours == ["rgb(255, 255, 255)", "rgb(0, 0, 0)"]
        assert not own.page.get_by_role("navigation").is_visible()
        own.page.screenshot(path=SCREENSHOTS / f"report-print-{theme}.png", full_page=True)
        assert own.page.pdf(format="A4").startswith(b"%PDF")


def test_a_reader_without_a_script_opens_the_figures_of_a_chart(browser: Browser, folder: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{folder.as_uri()}/broken.html")
    page.get_by_text("Figures: Rows per hour of 2013-01-16").click()
    row = page.get_by_role("row", name="17:00")
    assert row.is_visible()
    assert row.inner_text().split()[-1] == "outside"
    context.close()
