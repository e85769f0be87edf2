"""Chromium as a person uses it, and what it noticed: requests to other hosts, errors in its console, axe's findings."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Frame, Page, Request, StorageState, sync_playwright

import setup_browser
from tidemark.installation import PROJECT
from tidemark.stack.airflow import PAGES as FRAMED

Theme = Literal["light", "dark"]
THEMES: tuple[Theme, ...] = ("light", "dark")
WIDE, NARROW = 1280, 390
HEIGHT = 900
SCREENSHOTS = PROJECT / ".tidemark" / "screenshots"
_PATIENCE_MS = 60_000  # a machine with two cores runs Airflow, Kafka, S3 and Spark meanwhile
# Airflow's own page around ours: its faults are not ours to repair.
PAGES = "/tidemark/"
_AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
_LOCAL = {"127.0.0.1", "localhost", ""}
# Chromium looks for nothing outside: a request that a page makes to another host fails, and is noticed.
_ARGUMENTS = ("--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", "--force-color-profile=srgb")


@contextmanager
def chromium() -> Iterator[Browser]:
    """A running Chromium, without a window."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=setup_browser.install(), args=list(_ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


@dataclass(slots=True, kw_only=True)
class Noticed:
    """What went wrong in a window's pages so far."""

    other_hosts: list[str] = field(default_factory=list)
    console: list[str] = field(default_factory=list)

    def require_nothing(self) -> None:
        assert (self.other_hosts, self.console) == ([], [])


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A person's window on Airflow at ``url``."""

    page: Page
    url: str
    theme: Theme
    width: int
    noticed: Noticed

    def open(self, path: str = "") -> None:
        """A page of Airflow."""
        self.page.goto(f"{self.url}/{path}")

    def open_pages(self, path: str = "") -> Frame:
        """One of Tidemark's pages, inside Airflow's; returns once it is there."""
        self.open(f"{FRAMED}{path}")
        return self.pages()

    def pages(self) -> Frame:
        """The frame of Tidemark's pages; returns once its page is there."""
        element = self.page.locator("iframe").first.element_handle()
        frame = element.content_frame()
        assert frame is not None
        frame.wait_for_url(f"**{PAGES}**")
        frame.locator("h1").first.wait_for()
        return frame

    def screenshot(self, name: str) -> Path:
        """Save what the window shows; the file."""
        path = SCREENSHOTS / f"{name}-{self.theme}-{self.width}.png"
        self.page.screenshot(path=path, animations="disabled")
        return path


def violations(frame: Frame) -> list[str]:
    """What axe finds wrong in a frame's page: a line per rule, with the first element."""
    frame.evaluate(_AXE)
    # A rule of WCAG 2.2 that axe does not apply by itself.
    options: dict[str, Any] = {"resultTypes": ["violations"], "rules": {"target-size": {"enabled": True}}}
    found = frame.evaluate("options => axe.run(document, options)", options)
    return [f"{item['id']}: {item['help']}: {item['nodes'][0]['html'][:200]}" for item in found["violations"]]


@contextmanager
def window(
    browser: Browser, url: str, *, theme: Theme = "light", width: int = WIDE, state: StorageState | None = None
) -> Iterator[Window]:
    """A window of a person who is logged in by ``state``, or is not."""
    context = browser.new_context(
        viewport={"width": width, "height": HEIGHT},
        color_scheme=theme,
        locale="en-GB",
        timezone_id="Europe/Berlin",
        storage_state=state,
    )
    context.set_default_timeout(_PATIENCE_MS)
    noticed = Noticed()

    def note_request(request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in {"http", "https", "ws", "wss"} and parts.hostname not in _LOCAL:
            noticed.other_hosts.append(request.url)

    def note_console(message: ConsoleMessage) -> None:
        if message.type == "error" and PAGES in message.location["url"]:
            noticed.console.append(f"{message.text} ({message.location['url']})")

    context.on("request", note_request)
    context.on("console", note_console)
    context.on("weberror", lambda error: noticed.console.append(str(error.error)))
    try:
        page = context.new_page()
        yield Window(page=page, url=url, theme=theme, width=width, noticed=noticed)
    finally:
        context.close()


def log_in(browser: Browser, url: str, user: str, password: str) -> StorageState:
    """Log in as a person does; what the browser keeps of it."""
    with window(browser, url) as own:
        own.open()
        own.page.get_by_label("Username").fill(user)
        own.page.get_by_label("Password").fill(password)
        own.page.get_by_role("button", name="Sign in").click()
        own.page.get_by_role("link", name="Home").first.wait_for()
        return own.page.context.storage_state()
