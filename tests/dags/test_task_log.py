"""What a task's log says beside its step's lines, and what it leaves out (no server)."""

import logging
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from great_expectations.expectations import expectation
from pyiceberg.io import load_file_io

from tidemark.core.errors import ConfigError
from tidemark.expectations.query import SparkQueryExpectation
from tidemark.orchestration import tasks
from tidemark.tables.file_io import S3_FILES
from tidemark_airflow import approval, operators, spark_step
from tidemark_airflow.approval import ANSWER_FORM, ApproveStep
from tidemark_airflow.context import explained
from tidemark_airflow.operators import LeaseStep
from tidemark_airflow.spark_step import SparkStep

RUN = SimpleNamespace(name="run-1", stream=SimpleNamespace(name="flights"), outcome=lambda _: None)


class Lines(list[str]):
    """A log that keeps its lines."""

    def info(self, text: str, *values: object) -> None:
        self.append(text % values)

    def warning(self, *_: object) -> None:
        """Airflow's own line about a task outside of its runner."""


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    found = Lines()
    for kind in (LeaseStep, ApproveStep, SparkStep):
        monkeypatch.setattr(kind, "log", found)
    for module in (approval, operators, spark_step):
        monkeypatch.setattr(module, "open_run", lambda *_: RUN)
    return found


def test_a_task_that_waits_for_the_lease_says_what_for_and_when_it_has_it(
    monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    began = datetime.now(UTC)
    holders, dates = iter(["run-0 of flights", None]), iter([None, began])
    monkeypatch.setattr(tasks, "take_lease", lambda *_: next(holders))
    ti = SimpleNamespace(get_first_reschedule_date=lambda _: next(dates))
    step = LeaseStep(task_id="wait_for_lease", stream="flights")
    polls = [step.poke({"ti": ti, "run_id": "run-1"}).is_done for _ in range(2)]
    assert polls == [False, True]
    assert lines[0] == "Take the lease of flights for run run-1: one run of a stream works at a time"
    assert lines[1].endswith("for run-0 of flights")
    assert lines[2:] == ["Run run-1 has the lease of flights, after 0 s"]


def test_a_skipped_approval_says_why(monkeypatch: pytest.MonkeyPatch, lines: Lines) -> None:
    monkeypatch.setattr("tidemark.reconcile.approval.open_question", lambda _: None)
    step = ApproveStep(task_id="approve", stream="flights", params=ANSWER_FORM)
    with pytest.raises(AirflowSkipException):
        step.execute({"run_id": "run-1"})
    assert lines == ["Skipped: Nothing needs a person's approval"]


def test_a_skipped_spark_step_says_why(monkeypatch: pytest.MonkeyPatch, lines: Lines) -> None:
    monkeypatch.setattr(tasks, "nothing_to_do", lambda *_: "The speed layer has delivered nothing")
    step = SparkStep(task_id="delivery", step="delivery", stream="flights")
    with pytest.raises(AirflowSkipException):
        step.execute({"run_id": "run-1"})
    assert lines == ["Skipped: The speed layer has delivered nothing"]


def test_an_error_that_no_retry_mends_is_logged_once_with_its_place() -> None:
    def refuse() -> None:
        raise ConfigError("the setting is wrong", expected="yes", found="no")

    log, shown = logging.getLogger("tests.once"), []
    log.addHandler(handler := logging.Handler())
    monkey: Any = handler
    monkey.emit = lambda record: shown.append(logging.Formatter().format(record))
    try:
        explained(refuse)
    except AirflowFailException:
        log.exception("Task failed with exception")
    assert shown[0].count("the setting is wrong: expected yes, found no") == 1
    assert "in refuse" in shown[0]


def test_pyiceberg_says_nothing_of_each_table_that_it_loads(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        load_file_io({"py-io-impl": S3_FILES})
    assert caplog.messages == []


def test_an_expectation_of_ours_replaces_none_of_the_librarys() -> None:
    """Else Great Expectations warns of each renderer that it registers again."""
    assert not hasattr(expectation, SparkQueryExpectation.__name__)
    assert hasattr(expectation, "QueryExpectation")
