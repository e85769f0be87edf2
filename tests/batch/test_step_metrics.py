"""The metrics of steps over OTLP: once per attempt, failures too, and no step waits for a collector or fails by it."""

import logging
import socket
from datetime import date

import pytest

from tests.batch.logs import MONDAY, TUESDAY, Log
from tests.batch.test_seal import finalized, finish, two_days
from tests.collector import Collector, attributes, step_exports
from tidemark.core.errors import QualityError, RequestError
from tidemark.core.outcome import Attempt
from tidemark.reconcile.results import (
    AUDIT,
    REBUILD,
    WAIT,
    AuditResult,
    DayCounts,
    DeduplicatedBy,
    HeldDay,
    RebuildResult,
    WaitResult,
)
from tidemark.reconcile.seal import seal_run
from tidemark.telemetry import steps
from tidemark.telemetry.steps import EXPORTS, export_step
from tidemark.verify.day import verify_day

pytestmark = pytest.mark.conformance(55)

ENDPOINT = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
DAY = date(2026, 11, 20)


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EXPORTS, "paused_until", 0.0)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "tidemark"]


def hold_back_and_fail(attempt: Attempt[AuditResult]) -> None:
    attempt.result = AuditResult(staged=None, passed=False, held=(HeldDay(day=DAY, because="n < 0"),))
    raise QualityError("a check failed")


@pytest.mark.services
def test_every_attempt_of_a_step_is_exported_once_with_its_figures(log: Log, collector: Collector) -> None:
    run = log.run()
    with pytest.raises(QualityError), run.step(AUDIT) as attempt:
        hold_back_and_fail(attempt)
    with run.step(AUDIT) as attempt:
        attempt.result = AuditResult(staged=1, passed=True, held=())

    failed, passed = step_exports(collector)
    assert (failed.step, passed.step) == ("audit", "audit")
    assert failed.values["tidemark.step.failed"] == failed.values["tidemark.audit.held_back"] == 1
    assert passed.values["tidemark.step.failed"] == passed.values["tidemark.audit.held_back"] == 0
    wanted = {"tidemark.deployment": log.settings.deployment, "tidemark.stream": log.stream.name}
    assert failed.labels == passed.labels == {**wanted, "tidemark.step": "audit"}
    resources = [request.resource_metrics[0].resource for _, request in collector.requests]
    assert {attributes(item)["service.instance.id"] for item in resources} == {"steps"}
    assert {attributes(item)["service.name"] for item in resources} == {"tidemark"}


def test_the_figures_of_a_rebuild_are_the_sums_of_its_days() -> None:
    counts = [(10, 6, 3, 1), (200, 150, 30, 20)]
    days = tuple(
        DayCounts(
            day=date(2026, 11, n + 1),
            read=read,
            published=published,
            quarantined=quarantined,
            duplicates_removed=removed,
            duplicates_trimmed=7,
        )
        for n, (read, published, quarantined, removed) in enumerate(counts)
    )
    by = DeduplicatedBy(key=(), keep="first")
    assert REBUILD.figures is not None
    figures = REBUILD.figures(RebuildResult(plan="", inputs="", deduplicated_by=by, days=days))
    assert {item.name.removeprefix("tidemark.rebuild."): value for item, value in figures.items()} == {
        "read": 210,
        "published": 156,
        "quarantined": 33,
        "duplicates": 21,
    }


@pytest.mark.services
def test_an_unreachable_collector_costs_one_warning_and_no_step(
    log: Log, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(ENDPOINT, "http://me:secret@127.0.0.1:9/v1/metrics")
    run = log.run()
    with caplog.at_level(logging.WARNING):
        for waited in (1.0, 2.0):
            with run.step(WAIT) as attempt:
                attempt.result = WaitResult(ready=True, waited_seconds=waited)
            assert run.require(WAIT).waited_seconds == waited
    (line,) = warnings(caplog)
    assert line.startswith("metrics of step wait not exported to 127.0.0.1:9: ")
    assert "secret" not in caplog.text + "".join(capfd.readouterr())


def test_a_collector_that_never_answers_is_waited_for_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv(ENDPOINT, f"http://127.0.0.1:{silent.getsockname()[1]}/v1/metrics")
        for wait_s in (1, 7200):  # longer than a test may take
            monkeypatch.setattr(steps, "TIMEOUT_S", wait_s)
            export_step(deployment="d", stream="s", step="plan", seconds=1, failed=False)
    assert len(warnings(caplog)) == 1


def test_without_a_collector_nothing_is_exported_nor_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (ENDPOINT, "OTEL_EXPORTER_OTLP_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("tidemark.telemetry.steps._send", lambda *_: pytest.fail("it must not send"))
    export_step(deployment="d", stream="s", step="plan", seconds=1, failed=False)


@pytest.mark.services
def test_a_verification_exports_its_differences_and_one_that_could_not_be_made_failed(
    log: Log, collector: Collector
) -> None:
    two_days(log)
    run = finalized(log, "run-1", MONDAY)
    finish(run, {MONDAY: 10})
    seal_run(run)
    collector.requests.clear()
    found = verify_day(log.settings, log.stream.name, MONDAY)  # nobody has published rows
    with pytest.raises(RequestError):
        verify_day(log.settings, log.stream.name, TUESDAY)

    verified, failed = step_exports(collector)
    assert verified.step == failed.step == "verify"
    differences = sum(len(check.differences) for check in found.checks)
    assert found.verdict == "disproven"
    assert verified.values["tidemark.verify.differences"] == differences > 0
    assert (verified.values["tidemark.step.failed"], failed.values["tidemark.step.failed"]) == (0, 1)
    assert "tidemark.verify.differences" not in failed.values
