"""The saved status of a stream, and its tide: what pages show without reading the archive."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.batch.logs import MONDAY, TUESDAY, Log, at, drop_below, set_topic
from tests.batch.test_seal import finalized, finish, two_days
from tests.batch.test_status import beat, thursday
from tests.faults import FaultProxy, Rule
from tidemark.core.errors import FormatError
from tidemark.inspect.last_run import read_last_run
from tidemark.inspect.saved_status import parse_status, read_saved_status, save_status
from tidemark.inspect.status_rows import stream_row
from tidemark.inspect.tide import LogTide, Tide, read_tide
from tidemark.orchestration import tasks
from tidemark.reconcile.lease import take
from tidemark.reconcile.report.report import report_run
from tidemark.reconcile.seal import seal_run
from tidemark.run import Run
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings

HOUR_MS = 3_600_000


@pytest.fixture
def sealed(log: Log) -> Log:
    """Both days are sealed up to offset 15 of partition 0. Three records after that are not archived."""
    two_days(log)
    seal(log)
    log.produce(3, at(TUESDAY, 20))
    return log


def seal(log: Log) -> Run:
    run = finalized(log, "run-1", MONDAY, TUESDAY)
    finish(run, {MONDAY: 10, TUESDAY: 5})
    seal_run(run)
    report_run(run)
    return run


@pytest.fixture
def proxy(settings: Settings) -> Iterator[FaultProxy]:
    with FaultProxy(str(settings.s3_endpoint)) as running:
        yield running


def through(log: Log, proxy: FaultProxy) -> Settings:
    return log.settings.model_copy(update={"s3_endpoint": proxy.url})


def tide_of(log: Log, *, archived: int, left: float | None = None) -> Tide:
    """Of the two partitions. Nothing was ever in partition 1."""
    own = {"log_start": 0, "sealed": 15, "archived": archived, "high_watermark": 18}
    return Tide(
        found_at=thursday(5),
        alarm_hours=24,
        logs=(
            LogTide(log=log.owner(0), hours_left=left, **own),
            LogTide(log=log.owner(1), log_start=0, sealed=0, archived=0, high_watermark=0, hours_left=None),
        ),
    )


def test_a_saved_status_is_what_the_status_says_with_the_tide(sealed: Log) -> None:
    assert read_saved_status(sealed.store, sealed.layout) is None
    (found,) = save_status(sealed.settings, [sealed.stream.name], now=thursday(5))
    saved = read_saved_status(sealed.store, sealed.layout)
    assert saved is not None
    assert saved.found_at == thursday(5)
    assert saved.row == stream_row(found)
    assert (saved.row.last_sealed, saved.row.days[0].published) == (TUESDAY, 9)
    assert saved.tide == found.tide == tide_of(sealed, archived=15)


def test_a_later_status_stays_and_a_damaged_one_is_replaced(sealed: Log) -> None:
    names = [sealed.stream.name]
    save_status(sealed.settings, names, now=thursday(6))
    body = sealed.store.get(sealed.layout.status_key)
    save_status(sealed.settings, names, now=thursday(5))
    assert sealed.store.get(sealed.layout.status_key) == body
    sealed.store.put(sealed.layout.status_key, b'{"format":1,"status":{"row":1}}')
    with pytest.raises(FormatError, match=r"does not parse.*next run, or its next check"):
        read_saved_status(sealed.store, sealed.layout)
    save_status(sealed.settings, names, now=thursday(5))
    saved = read_saved_status(sealed.store, sealed.layout)
    assert saved is not None
    assert saved.found_at == thursday(5)


def test_a_status_of_a_newer_format_is_refused() -> None:
    with pytest.raises(FormatError, match="unknown format of a saved status: expected 1, found 2"):
        parse_status(b'{"format":2,"status":{}}', where="here")


def test_the_report_step_saves_the_status_of_the_run_that_has_ended(log: Log) -> None:
    two_days(log)
    run = finalized(log, "run-1", MONDAY, TUESDAY)
    assert take(run) is None
    finish(run, {MONDAY: 10, TUESDAY: 5})
    seal_run(run)
    tasks.report(run)
    saved = read_saved_status(log.store, log.layout)
    assert saved is not None
    assert saved.row.last_run is not None
    assert (saved.row.last_run.name, saved.row.last_sealed, saved.row.running) == ("run-1", TUESDAY, None)


def test_a_status_that_cannot_be_saved_fails_no_run(
    log: Log, proxy: FaultProxy, caplog: pytest.LogCaptureFixture
) -> None:
    two_days(log)
    run = finalized(log, "run-1", MONDAY, TUESDAY)
    proxy.add(Rule(method="PUT", pattern="/status/", answer=(403, "AccessDenied"), times=99))
    settings = through(log, proxy)
    tasks.report(replace(run, settings=settings, store=ObjectStore(settings)))
    assert f"the status of stream {log.stream.name} could not be saved" in caplog.text
    assert "AccessDenied" in caplog.text
    assert read_saved_status(log.store, log.layout) is None


def test_the_last_run_is_found_without_listing_the_runs(sealed: Log, proxy: FaultProxy) -> None:
    found = read_last_run(ObjectStore(through(sealed, proxy)), sealed.layout)
    assert found is not None
    assert found.name == "run-1"
    assert [method for method, _, _ in proxy.log] == ["GET", "GET"]
    assert not [target for _, target, _ in proxy.log if "list-type" in target]
    sealed.store.delete(sealed.layout.last_run_key)  # an older archive has none
    assert read_last_run(sealed.store, sealed.layout) == found


def live_tide(log: Log) -> Tide:
    return read_tide(log.settings.kafka, log.store, log.layout, log.stream, now=thursday(5))


def test_the_live_tide_is_that_of_kafka_heartbeat_and_last_seal(sealed: Log) -> None:
    assert live_tide(sealed) == tide_of(sealed, archived=15)
    beat(sealed, positions=((0, 18),))
    assert live_tide(sealed) == tide_of(sealed, archived=18)


def test_the_tide_has_the_hours_until_kafka_may_delete_what_is_not_archived(sealed: Log) -> None:
    limit_ms = 20 * 365 * 24 * HOUR_MS  # the records are of 2013
    set_topic(sealed, "retention.ms", str(limit_ms))
    left = (at(TUESDAY, 20) + limit_ms - round(thursday(5).timestamp() * 1000)) / HOUR_MS
    assert live_tide(sealed) == tide_of(sealed, archived=15, left=left)
    beat(sealed, positions=((0, 18),))
    assert live_tide(sealed) == tide_of(sealed, archived=18)


def test_what_kafka_deleted_before_it_was_archived_is_lost_in_both_tides(sealed: Log) -> None:
    """Sealed up to 15, of 18. The archive has 16 and 17 too, or it has not."""
    drop_below(sealed, 17)
    (found,) = save_status(sealed.settings, [sealed.stream.name], now=thursday(5))
    assert found.tide is not None
    assert [item.lost for item in found.tide.logs] == [item.lost for item in live_tide(sealed).logs] == [2, 0]
    beat(sealed, positions=((0, 18),))
    assert [item.lost for item in live_tide(sealed).logs] == [0, 0]
