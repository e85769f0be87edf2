"""``tidemark metrics`` without servers: its address, what a slow answer does to a scrape, and a missing package."""

import sys
from dataclasses import replace
from datetime import UTC, date, datetime
from threading import Event

import httpx
import pytest
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from typer.testing import CliRunner

from tidemark.cli.app import app
from tidemark.cli.metrics import Cache, Samples, StatusCollector, parse_address
from tidemark.core.errors import ConfigError, RequestError
from tidemark.inspect.problems import KINDS, Problem
from tidemark.inspect.status import StreamStatus
from tidemark.inspect.status_metrics import READ_AT, STATUS_METRICS, Sample, status_samples
from tidemark.settings import Settings

pytestmark = pytest.mark.conformance(55)

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)


def answer(number: float) -> Samples:
    return (Sample(READ_AT, ("prod",), number),)


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.1:9464", ("127.0.0.1", 9464)), ("[::1]:1", ("::1", 1)), ("metrics.local:0", ("metrics.local", 0))],
)
def test_an_address_is_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["9464", ":9464", "localhost", "localhost:", "localhost:http", "localhost:65536"])
def test_other_texts_are_refused_as_addresses(text: str) -> None:
    with pytest.raises(RequestError, match="expected HOST:PORT, such as"):
        parse_address(text)


def test_a_fresh_answer_serves_again_and_an_old_one_is_asked_for_again() -> None:
    numbers = iter(range(10))
    fresh = Cache(lambda: answer(next(numbers)), fresh_s=60, wait_s=5)
    assert [fresh.get(), fresh.get()] == [answer(0), answer(0)]
    old = Cache(lambda: answer(next(numbers)), fresh_s=0, wait_s=5)
    assert [old.get(), old.get()] == [answer(1), answer(2)]


def test_while_a_new_answer_takes_too_long_the_last_one_serves_and_nobody_asks_twice() -> None:
    go, asked = Event(), []

    def read() -> Samples:
        asked.append(True)
        if len(asked) > 1:
            go.wait(10)
        return answer(len(asked))

    cache = Cache(read, fresh_s=0, wait_s=0.05)
    assert cache.get() == answer(1)
    assert [cache.get(), cache.get()] == [answer(1), answer(1)]
    assert len(asked) == 2
    waiting = Cache(lambda: answer(7) if go.wait(10) else (), fresh_s=60, wait_s=0.05)
    with pytest.raises(TimeoutError):
        waiting.get()
    go.set()


def test_an_error_reaches_who_asked_and_the_next_one_asks_again() -> None:
    asked = []

    def read() -> Samples:
        asked.append(True)
        if len(asked) == 1:
            raise ConfigError("no such folder")
        return answer(2)

    cache = Cache(read, fresh_s=60, wait_s=5)
    with pytest.raises(ConfigError, match="no such folder"):
        cache.get()
    assert cache.get() == answer(2)


def test_a_scrape_that_accepts_openmetrics_gets_it() -> None:
    registry = CollectorRegistry()
    registry.register(StatusCollector(lambda: answer(3)))
    server, thread = start_http_server(0, "127.0.0.1", registry)
    try:
        accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
        text = httpx.get(f"http://127.0.0.1:{server.server_port}/metrics", headers=accept).text
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    parsed = text_string_to_metric_families(text)  # type: ignore[no-untyped-call]  # the library has no types here
    families = {family.name: family for family in parsed}
    assert families.keys() == {item.name for item in STATUS_METRICS}
    (sample,) = families[READ_AT.name].samples
    assert (sample.labels, sample.value) == ({"tidemark_deployment": "prod"}, 3)


def test_every_kind_of_problem_has_a_number_and_a_stream_without_a_day_no_time(settings_of_prod: Settings) -> None:
    problems = tuple(Problem(kind=kind, text="t", hint="h") for kind in ("unknown", "unknown", "day_overdue"))
    status = StreamStatus(
        stream="flights",
        layers=(),
        days=(),
        last_sealed=None,
        overdue=(date(2026, 11, 1), date(2026, 11, 2)),
        unproven=(),
        waiting=5,
        last_run=None,
        problems=problems,
        days_known=True,
        running=None,
    )
    found = list(status_samples(settings_of_prod, [status], now=NOW, seconds=0.5))
    numbers = {item.labels[2]: item.value for item in found if item.metric.name == "tidemark_problem"}
    assert numbers == {kind: {"unknown": 2, "day_overdue": 1}.get(kind, 0) for kind in KINDS}
    others = {item.metric.name: item.value for item in found if item.metric.name != "tidemark_problem"}
    assert others == {
        "tidemark_status_timestamp_seconds": NOW.timestamp(),
        "tidemark_status_duration_seconds": 0.5,
        "tidemark_day_overdue": 2,
        "tidemark_day_unproven": 0,
        "tidemark_waiting_records": 5,
    }
    assert all(len(item.labels) == len(item.metric.labels) for item in found)
    unknown = replace(status, days_known=False, overdue=(), waiting=0)
    left = {item.metric.name for item in status_samples(settings_of_prod, [unknown], now=NOW, seconds=0.5)}
    assert left == {"tidemark_problem", "tidemark_status_timestamp_seconds", "tidemark_status_duration_seconds"}


@pytest.fixture
def settings_of_prod() -> Settings:
    return Settings.model_construct(deployment="prod")


def test_without_its_library_the_command_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "tidemark.cli.metrics", raising=False)
    done = CliRunner().invoke(app, ["metrics"])
    assert done.exit_code == 2
    assert "ConfigError: a package is missing" in done.stderr
    assert "Install tidemark[otel]" in done.stderr
