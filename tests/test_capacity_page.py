"""The capacity page: its tables and its picture are worked out by the code, and the code predicts what was counted."""

from datetime import date
from math import inf

import pytest

import capacity_page
from benchmarks.s3_requests import CASES, DAYS, Case, predicted, predicted_speed
from tidemark.core.capacity import MIB, ArchiveSettings, Load, archive_day, manifest_bytes, speed_day, task_memory
from tidemark.core.costs import COSTLY_PER_DAY, MANY_OBJECTS, TINY_RECORDS
from tidemark.core.layout import DataName, Layout
from tidemark.core.logged_record import LoggedRecord
from tidemark.core.manifest import CommittedRange, DataFile, DayRows, Manifest
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.core.requests import ASSUMED_PRICES, Requests, heartbeats, lease_checks, reconcile_run


def test_the_pages_tables_and_picture_are_those_of_the_code(request: pytest.FixtureRequest) -> None:
    """With --write-tables it writes them."""
    page = capacity_page.PAGE.read_text(encoding="utf-8")
    if request.config.getoption("--write-tables"):
        capacity_page.PAGE.write_text(capacity_page.written(page), encoding="utf-8")
        capacity_page.PICTURE.write_text(capacity_page.picture(), encoding="utf-8")
        return
    assert capacity_page.MARK.findall(page)
    assert capacity_page.written(page) == page
    assert capacity_page.PICTURE.read_text(encoding="utf-8") == capacity_page.picture()


def of_benchmark(case: str, which: str = "counted") -> Requests:
    return Requests(**capacity_page.measured()[case][which])


def test_the_numbers_in_the_pages_text_are_those_of_the_code() -> None:
    page = " ".join(capacity_page.PAGE.read_text(encoding="utf-8").split())
    prices, one = ASSUMED_PRICES, Load(partitions=1)
    idle = archive_day(ArchiveSettings(), Load(partitions=1, records_per_second=0)).requests
    fast, slow = (100 * prices.cost(speed_day(seconds, one).requests) for seconds in (1, 10))
    many = prices.cost(archive_day(ArchiveSettings(trigger_seconds=900), Load(partitions=1_000)).requests)
    start = Requests(**capacity_page.measured()["idle"]["starting"])
    for text in (
        f"a million writes or lists cost ${prices.million_writes:g}. a million reads cost ${prices.million_reads:.2f}",
        f"a gb costs ${prices.gb_month} a month",
        f"100 of them cost ${fast:.0f} a day with a trigger of 1 s, and ${slow:.0f} with 10 s",
        f"a cost of ${many:.2f} for requests of its archive",
        f"a start sent {start.total:g} requests",
        f"cost more than ${COSTLY_PER_DAY:g} a day",
        f"more than {MANY_OBJECTS:,} objects with fewer than {TINY_RECORDS:,} records each",
        f"a manifest is {manifest_bytes(100_000, 100_000) / 1e6:.0f} mb",
        prices.name.lower().replace(", list price", " by the list price"),
    ):
        assert text in page.lower(), text
    assert round(100 * prices.cost(idle)) == 5  # "five cents a day"
    assert "five cents a day" in page
    month = [prices.cost(Requests(put=1, get=1)) < size / 1e9 * prices.gb_month for size in (1e5, 2e5, 1e6)]
    assert month == [False, False, True]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_archive_batch_was_counted_as_it_is_predicted(case: Case) -> None:
    assert of_benchmark(case.name) == predicted(case)


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_speed_batch_was_counted_as_it_is_predicted(delivery: str) -> None:
    assert of_benchmark(delivery) == predicted_speed(delivery)


def test_an_idle_stream_was_counted_as_it_is_predicted() -> None:
    assert of_benchmark("idle") == heartbeats(120, inf) + lease_checks(120)


@pytest.mark.parametrize(("partitions", "batches"), DAYS)
def test_a_reconcile_run_was_counted_as_it_is_predicted(partitions: int, batches: int) -> None:
    wanted = reconcile_run(objects=partitions * batches, manifests=batches, folders=partitions)
    assert of_benchmark(f"day_p{partitions}_b{batches}") == wanted


@pytest.mark.parametrize(("open_files", "mib"), [(1, 341), (10, 518), (100, 738)])
def test_a_task_needed_less_memory_than_the_estimate(open_files: int, mib: int) -> None:
    """The measurements are those of performance.md: 4 million records of 200 bytes in one batch and partition."""
    load = Load(partitions=1, records_per_second=4e6, record_bytes=200, folders=open_files)
    settings = ArchiveSettings(trigger_seconds=1, max_open_files=open_files, max_offsets_per_trigger=4_000_000)
    assert mib * MIB <= task_memory(settings, load) <= 2 * mib * MIB


def test_a_manifests_size_is_near_the_estimate() -> None:
    span, digest = OffsetRange(start=123_456_789, end=123_466_789), "a" * 64
    time_us = 1_700_000_000_000_000
    topic = "orders-of-shops"
    logs = [TopicPartition(topic=topic, topic_id="ANPCQKMcTJOHqvx9XJLV1g", partition=item) for item in range(200)]
    layout = Layout(prefix="lake", stream="orders")
    files = [
        DataFile(
            key=layout.data_key(
                DataName(path=f"partition={log.partition}", topic=topic, partition=log.partition, range=span, seq=0)
            ),
            log=log,
            range=span,
            rows=10_000,
            bytes=1_500_000,
            first_offset=span.start,
            last_offset=span.end - 1,
            min_timestamp_us=time_us,
            max_timestamp_us=time_us + 60_000_000,
            days=(DayRows(day=date(2026, 1, 1), rows=10_000, first_offset=span.start, last_offset=span.end - 1),),
            checksum=digest,
            sha256=digest,
        )
        for log in logs
    ]
    body = Manifest(
        stream="orders",
        writer="4f8e2c9a-5f0e-4d1b-9c3f-0a8f2f6f7d11",
        batch=17,
        committed_at_us=time_us,
        time_zone="UTC",
        settings="a" * 16,
        previous=digest,
        ranges=tuple(CommittedRange(log=log, range=span, rows=10_000) for log in logs),
        files=tuple(sorted(files, key=lambda file: file.key)),
        last=tuple(
            LoggedRecord(
                log=log, offset=span.end - 1, timestamp_us=1_700_000_060_000_000, digest=digest, leader_epoch=3
            )
            for log in logs
        ),
    ).to_json()
    assert 0.9 <= len(body) / manifest_bytes(len(logs), len(files)) <= 1.1
