"""Summaries of sealed days in S3: what they cost to read, and that nothing that goes wrong costs more than a read."""

import multiprocessing
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, timedelta

import pytest

from tests.batch.logs import MONDAY, TUESDAY, Log
from tests.batch.test_seal import finalized, finish, two_days
from tests.conftest import unique
from tests.core.worlds import log as log_of
from tests.core.worlds import seal_of, sealed_log
from tests.counted import counted
from tests.faults import FaultProxy, Rule
from tidemark.core.day_summary import parse_month, summarise
from tidemark.core.layout import Layout
from tidemark.core.requests import Requests
from tidemark.core.seal import Seal
from tidemark.definitions.stream import Stream
from tidemark.reconcile.seal import seal_run
from tidemark.run import Run
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.tables.day_summaries import read_day_summaries, refresh_day_summaries
from tidemark.tables.seals import day_seals, first_sealed_day, last_sealed

JANUARY = tuple(date(2013, 1, 1) + timedelta(days=at) for at in range(31))
FEBRUARY_1 = date(2013, 2, 1)


@pytest.fixture
def layout() -> Layout:
    return Layout(prefix=unique("summaries"), stream="flights")


@pytest.fixture
def proxy(settings: Settings) -> Iterator[FaultProxy]:
    with FaultProxy(str(settings.s3_endpoint)) as running:
        yield running


@pytest.fixture
def through(settings: Settings, proxy: FaultProxy) -> ObjectStore:
    return ObjectStore(settings.model_copy(update={"s3_endpoint": proxy.url}))


def put_seals(store: ObjectStore, layout: Layout, days: Sequence[date], *, version: int = 1) -> tuple[Seal, ...]:
    seals = tuple(
        replace(seal_of(day, [sealed_log(log_of(), 0, 5 + day.day)], version=version), run=f"run-{day}") for day in days
    )
    for seal in seals:
        assert store.put_if_absent(layout.seal_key(seal.day, seal.version), seal.to_json())
    return seals


def months(store: ObjectStore, layout: Layout) -> dict[str, list[tuple[date, int]]]:
    """Days and versions in the objects of the months."""
    found = {}
    for item in store.list(layout.summary_prefix):
        summaries = parse_month(store.get(item.key) or b"", where=item.key)
        found[layout.parse_summary_key(item.key)] = [(one.day, one.version) for one in summaries]
    return found


def test_a_month_of_sealed_days_is_read_with_one_listing_and_one_object(
    store: ObjectStore, layout: Layout, proxy: FaultProxy, through: ObjectStore
) -> None:
    seals = put_seals(store, layout, JANUARY)
    put_seals(store, layout, [FEBRUARY_1])
    refresh_day_summaries(store, layout)
    assert read_day_summaries(through, layout, JANUARY[0], JANUARY[-1]) == tuple(map(summarise, seals))
    assert counted(proxy.log) == Requests(list=1, get=1)


def test_a_version_that_its_month_lacks_is_read_from_its_seal(
    store: ObjectStore, layout: Layout, proxy: FaultProxy, through: ObjectStore
) -> None:
    first = put_seals(store, layout, JANUARY[:3])
    refresh_day_summaries(store, layout)
    second = put_seals(store, layout, JANUARY[1:2], version=2)
    found = read_day_summaries(through, layout, JANUARY[0], JANUARY[-1])
    assert found == tuple(map(summarise, (*first[:2], *second, first[2])))
    assert counted(proxy.log) == Requests(list=1, get=2)
    refresh_day_summaries(store, layout, JANUARY[1:2])
    proxy.clear()
    assert read_day_summaries(through, layout) == found
    assert counted(proxy.log) == Requests(list=1, get=1)


def test_the_first_and_the_last_sealed_day_are_found_wherever_they_are(
    store: ObjectStore, layout: Layout, proxy: FaultProxy, through: ObjectStore
) -> None:
    assert (first_sealed_day(store, layout), last_sealed(store, layout, recent=JANUARY[0])) == (None, None)
    put_seals(store, layout, JANUARY)
    put_seals(store, layout, JANUARY[-1:], version=2)
    for recent, listings in ((JANUARY[3], 1), (JANUARY[-1], 1), (FEBRUARY_1, 2)):
        proxy.clear()
        assert last_sealed(through, layout, recent=recent) == (JANUARY[-1], 2)
        assert counted(proxy.log) == Requests(list=listings)
    assert first_sealed_day(store, layout) == JANUARY[0]


def test_bounds_are_days_and_both_are_included(store: ObjectStore, layout: Layout) -> None:
    put_seals(store, layout, (*JANUARY, FEBRUARY_1))
    found = read_day_summaries(store, layout, JANUARY[29], JANUARY[30])
    assert [item.day for item in found] == [JANUARY[29], JANUARY[30]]
    assert [item.day for item in read_day_summaries(store, layout, JANUARY[30])] == [JANUARY[30], FEBRUARY_1]
    assert read_day_summaries(store, layout, date(2014, 1, 1)) == ()


def test_an_archive_without_summaries_gets_all_of_its_months_at_the_next_seal(
    store: ObjectStore, layout: Layout
) -> None:
    put_seals(store, layout, (JANUARY[0], FEBRUARY_1, date(2014, 2, 1)))
    refresh_day_summaries(store, layout, [FEBRUARY_1])
    assert months(store, layout) == {
        "2013-01": [(JANUARY[0], 1)],
        "2013-02": [(FEBRUARY_1, 1)],
        "2014-02": [(date(2014, 2, 1), 1)],
    }


def test_a_seal_that_was_deleted_is_no_longer_listed(store: ObjectStore, layout: Layout) -> None:
    put_seals(store, layout, JANUARY[:2])
    refresh_day_summaries(store, layout)
    store.delete(layout.seal_key(JANUARY[0], 1))
    assert [item.day for item in read_day_summaries(store, layout)] == [JANUARY[1]]


def test_two_writers_of_one_month_keep_each_others_summaries(
    store: ObjectStore, layout: Layout, proxy: FaultProxy, through: ObjectStore
) -> None:
    """The second writes after the first has read the month, and before the first writes it."""
    put_seals(store, layout, JANUARY[:1])
    refresh_day_summaries(store, layout)
    put_seals(store, layout, JANUARY[1:2])

    def other(_: str) -> None:
        put_seals(store, layout, JANUARY[2:3])
        refresh_day_summaries(store, layout, JANUARY[2:3])

    rule = proxy.add(Rule(method="PUT", pattern="/summaries/", action=other))
    refresh_day_summaries(through, layout, JANUARY[1:2])
    assert rule.fired.is_set()
    assert months(store, layout) == {"2013-01": [(day, 1) for day in JANUARY[:3]]}


def sealable(log: Log) -> Run:
    two_days(log)
    run = finalized(log, "run-1", MONDAY, TUESDAY)
    finish(run, {MONDAY: 10, TUESDAY: 5})
    return run


def seal_in_a_process(settings: Settings, stream: Stream, layout: Layout) -> None:
    seal_run(Run(stream=stream, settings=settings, store=ObjectStore(settings), layout=layout, name="run-1"))


def test_a_run_killed_between_seal_and_summary_is_repaired_by_readers_and_by_its_repeat(
    log: Log, proxy: FaultProxy
) -> None:
    run = sealable(log)
    settings = log.settings.model_copy(update={"s3_endpoint": proxy.url})
    process = multiprocessing.get_context("spawn").Process(
        target=seal_in_a_process, args=(settings, log.stream, log.layout)
    )
    proxy.add(Rule(method="PUT", pattern="/summaries/", action=lambda _: process.kill(), reset=True))
    process.start()
    process.join(120)
    assert process.exitcode == -9
    assert months(log.store, log.layout) == {}
    sealed = [day_seals(log.store, log.layout, day)[0] for day in (MONDAY, TUESDAY)]
    assert read_day_summaries(log.store, log.layout) == tuple(map(summarise, sealed))
    seal_run(run)
    assert months(log.store, log.layout) == {"2013-01": [(MONDAY, 1), (TUESDAY, 1)]}


def test_a_summary_that_cannot_be_written_fails_no_run(
    log: Log, proxy: FaultProxy, caplog: pytest.LogCaptureFixture
) -> None:
    run = sealable(log)
    proxy.add(Rule(method="PUT", pattern="/summaries/", answer=(403, "AccessDenied"), times=99))
    guarded = replace(run, store=ObjectStore(log.settings.model_copy(update={"s3_endpoint": proxy.url})))
    sealed = seal_run(guarded)
    assert "the summaries of the sealed days could not be written" in caplog.text
    assert "AccessDenied" in caplog.text
    assert read_day_summaries(log.store, log.layout) == tuple(map(summarise, sealed))
