"""The steps of the tutorial in Airflow, as a person does them."""

from dataclasses import dataclass
from datetime import date
from pathlib import Path

from playwright.sync_api import Frame, expect

from tests.browser.airflow_form import trigger
from tests.browser.chromium import Window
from tests.dags.runs import BACKFILL
from tests.pages import Block, blocks
from tests.waiting import wait_until
from tidemark.installation import PROJECT

FLIGHTS = "flights_of_tutorial"  # the demo's topic; other tests use that name with other records
DELAYS = "delays"
DAY = date(2013, 1, 14)
WORDS = "A storm over the coast. The airports confirm it."
_EVERY_S = 8  # a page of Airflow costs seconds of processor time
_PAGE = blocks(PROJECT / "docs" / "tutorial-in-airflow.md")
_FILES = {block.title: block.text for block in _PAGE if block.title}


def _correction() -> Block:
    """The line that the page says to correct."""
    (found,) = (block for block in _PAGE if block.language == "yaml" and not block.title)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Newcomer:
    """A person with the tutorial, Airflow's window and a text editor."""

    window: Window
    streams: Path

    def add_the_stream(self) -> None:
        for name, text in _FILES.items():
            own = text.replace("topic: flights\n", f"topic: {FLIGHTS}\n")
            (self.streams / Path(name).name).write_text(own, encoding="utf-8")

    def correct_it(self) -> None:
        file = self.streams / f"{DELAYS}.yaml"
        line = _correction().text
        key = line.partition(":")[0]
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        file.write_text("".join(line if old.startswith(f"{key}:") else old for old in lines), encoding="utf-8")

    def wait_for_row(self, text: str, *, shown: bool) -> Frame:
        """Load the page of all streams until the stream's row says something, or no longer says it."""

        def there() -> bool:
            row = self.window.open_pages().get_by_role("row").filter(has_text=DELAYS)
            return bool(row.count()) and (text in row.first.inner_text()) == shown

        wait_until(there, f"the row of {DELAYS} {'says' if shown else 'does not say'} {text}", 300, every_s=_EVERY_S)
        return self.window.pages()

    def open_day_of_last_run(self) -> Frame:
        """From the page of all streams to the day, by links."""
        frame = self.window.open_pages()
        frame.get_by_role("link", name=DELAYS, exact=True).click()
        frame.get_by_role("region", name="Last run").get_by_role("link").click()
        frame.get_by_role("link", name=str(DAY), exact=True).first.click()
        frame.get_by_role("heading", name="Actions", exact=True).wait_for()
        return frame

    def backfill(self, *, dry_run: bool) -> str:
        """By Airflow's form; the run's id."""
        form: dict[str, str | bool | date] = {"stream": DELAYS, "from_day": DAY, "to_day": DAY, "dry_run": dry_run}
        return trigger(self.window, BACKFILL, form)

    def read_plan(self, run: str) -> None:
        """Open the log of a dry run, which must name the day."""
        self.window.open(f"dags/{BACKFILL}/runs/{run}/tasks/chunks")
        expect(self.window.page.get_by_text(str(DAY)).first).to_be_visible(timeout=120_000)

    def approve(self) -> None:
        """Wait until the day's page asks, and answer."""

        def asked() -> bool:
            frame = self.window.open_pages(f"streams/{DELAYS}")
            return frame.get_by_role("region", name="Last run").count() == 1

        wait_until(asked, "the stream has a run that waits", 600, every_s=_EVERY_S)
        frame = self.open_day_of_last_run()
        frame.get_by_label("Why (goes into the seal and the report)").fill(WORDS)
        self.window.screenshot("approval")
        frame.get_by_role("button", name="Approve", exact=True).click()
        frame.get_by_role("status").first.wait_for()

    def wait_until_complete(self, stream: str, day: date) -> Frame:
        """Load the day's page until a version is sealed."""

        def sealed() -> bool:
            frame = self.window.open_pages(f"streams/{stream}/days/{day}")
            return frame.get_by_role("heading", name="Versions", exact=True).count() == 1

        wait_until(sealed, f"{stream} {day} is sealed", 600, every_s=_EVERY_S)
        return self.window.pages()
