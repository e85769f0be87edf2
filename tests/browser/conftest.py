"""One Airflow for the tests in a browser, and Chromium. While Airflow starts, the stream's days are made."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, StorageState
from pyspark.sql import SparkSession

from tests.browser.chromium import WIDE, Theme, Window, chromium, log_in, window
from tests.browser.newcomer import FLIGHTS
from tests.browser.rides import Rides
from tests.conftest import Produce
from tidemark.demo.produce import EventLog
from tidemark.demo.source import events
from tidemark.settings import Settings
from tidemark.stack.airflow import USER, LocalAirflow
from tidemark.stack.local import LocalStack

VIEWER = "vera"
OpenWindow = Callable[..., AbstractContextManager[Window]]


@pytest.fixture(scope="module")
def streams(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of definitions."""
    return tmp_path_factory.mktemp("streams")


@pytest.fixture(scope="module")
def rides(settings: Settings, streams: Path) -> Rides:
    """Defined; its days are there once ``airflow`` is."""
    return Rides.define(settings, streams)


@pytest.fixture(scope="module")
def airflow(
    stack: LocalStack, streams: Path, rides: Rides, produce: Produce, spark: SparkSession
) -> Iterator[LocalAirflow]:
    """With an administrator, and a person who may only look; beside the stream, with the demo's topic."""
    own = {
        "TIDEMARK_STREAMS_DIR": str(streams),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin,{VIEWER}:viewer",
        # A definition that a person adds appears soon.
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "10",
    }
    running = LocalAirflow(stack, schedules=False, extra_env=own)
    try:
        with ThreadPoolExecutor(max_workers=1) as pool:
            started = pool.submit(running.start)
            EventLog(rides.settings.kafka, FLIGHTS).produce(events(), lambda: None)
            rides.fill(produce, spark)
            started.result()
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def logged_in(airflow: LocalAirflow, browser: Browser) -> dict[str, StorageState]:
    """Who has logged in, by their name."""
    passwords = json.loads(airflow.password_file.read_text(encoding="utf-8"))
    return {user: log_in(browser, airflow.api.url, user, passwords[user]) for user in (USER, VIEWER)}


@pytest.fixture(scope="module")
def open_window(airflow: LocalAirflow, browser: Browser, logged_in: dict[str, StorageState]) -> OpenWindow:
    """A window of the administrator, or of another user; of somebody who has not logged in with ``user=None``."""

    def opened(user: str | None = USER, *, theme: Theme = "light", width: int = WIDE) -> AbstractContextManager[Window]:
        state = None if user is None else logged_in[user]
        return window(browser, airflow.api.url, theme=theme, width=width, state=state)

    return opened
