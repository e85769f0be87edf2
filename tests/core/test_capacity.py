"""Estimates of a stream's batches, objects, requests and memory, with numbers worked out by hand."""

from math import inf

import pytest

from tidemark.archive.write import task
from tidemark.core import capacity, requests
from tidemark.core.capacity import (
    ArchiveSettings,
    Load,
    archive_day,
    batch_interval,
    batch_requests,
    object_bytes,
    objects_per_batch,
    speed_day,
    task_memory,
)
from tidemark.core.requests import ASSUMED_PRICES, Prices, Requests, data_object, heartbeats
from tidemark.definitions.sections import Archive
from tidemark.objects import encoder
from tidemark.spark import lease, monitor

BUSY = Load(partitions=4, records_per_second=1_000, record_bytes=100)


def test_the_defaults_are_those_of_the_definition() -> None:
    ours = ArchiveSettings()
    theirs = Archive()
    assert {name: getattr(theirs, name) for name in ArchiveSettings.__slots__} == {
        name: getattr(ours, name) for name in ArchiveSettings.__slots__
    }


def test_the_constants_are_those_of_the_code() -> None:
    assert (requests.HEARTBEAT_S, requests.LEASE_CHECK_S) == (monitor.BEAT_S, lease.CHECK_S)
    assert (capacity.ROW_GROUP_BYTES, capacity.WAITING_BYTES) == (encoder.ROW_GROUP_BYTES, task.WAITING_BYTES)


@pytest.mark.parametrize(
    ("settings", "load", "seconds"),
    [
        ({"trigger_seconds": 10}, BUSY, 10),
        ({"trigger_seconds": 0}, BUSY, 0.5),
        ({"trigger_seconds": 10, "min_offsets_per_trigger": 60_000}, BUSY, 60),
        ({"trigger_seconds": 10, "min_offsets_per_trigger": 6_000_000}, BUSY, 900),
        ({"min_offsets_per_trigger": 6_000_000, "max_trigger_delay_seconds": 30}, BUSY, 30),
        ({"trigger_seconds": 60, "max_offsets_per_trigger": 5_000}, BUSY, 5),
        ({"trigger_seconds": 10}, Load(partitions=4, records_per_second=0), inf),
        ({"trigger_seconds": 10}, Load(partitions=4, records_per_second=0.01), 100),
        ({"trigger_seconds": 10}, Load(partitions=4), 10),
    ],
    ids=["trigger", "no pause", "minimum", "delay", "shorter delay", "maximum", "idle", "quiet", "unknown"],
)
def test_a_batch_comes_when_its_settings_allow_it(settings: dict[str, float], load: Load, seconds: float) -> None:
    assert batch_interval(ArchiveSettings(**settings), load) == seconds  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "load", "objects"),
    [
        ({}, BUSY, 4),
        ({"flush_size": 1_000}, BUSY, 4 * 3),  # 2,500 rows of each partition
        ({"max_bytes": 100_000}, BUSY, 4 * 3),
        ({"rotate_interval_seconds": 4}, BUSY, 4 * 3),
        ({}, Load(partitions=4, records_per_second=1_000, folders=10), 40),
        ({"max_folders": 5}, Load(partitions=4, records_per_second=1_000, folders=10), 4 * 6),
        ({}, Load(partitions=1_000, records_per_second=10), 100),  # 100 records fill 100 objects at most
        ({}, Load(partitions=7), 7),
        ({}, Load(partitions=7, records_per_second=0), 0),
    ],
)
def test_a_batch_has_objects_by_partition_folder_and_size(settings: dict[str, int], load: Load, objects: int) -> None:
    assert objects_per_batch(ArchiveSettings(**settings), load) == objects


def test_an_object_above_part_bytes_goes_up_in_parts() -> None:
    assert data_object(10, 10) == Requests(get=1, put=1)
    assert data_object(11, 10) == Requests(get=1, post=2, part=2)


def test_compression_makes_objects_smaller() -> None:
    load = Load(partitions=2, records_per_second=100, record_bytes=1_000, stored_share=0.25)
    assert object_bytes(ArchiveSettings(), load) == 100 * 10 * 1_000 * 0.25 / 2
    assert object_bytes(ArchiveSettings(), Load(partitions=2)) is None


def test_a_batch_costs_its_checkpoint_its_commit_and_its_objects() -> None:
    fixed = Requests(put=2 + 1, head=2 * 5, list=2 * 5 + 1, delete=2, get=11)
    assert batch_requests(ArchiveSettings(), BUSY) == fixed + Requests(put=4, get=4)


def test_an_idle_stream_costs_heartbeats_and_lease_checks_only() -> None:
    day = archive_day(ArchiveSettings(), Load(partitions=100, records_per_second=0))
    assert (day.batches, day.objects) == (0, 0)
    assert day.requests == Requests(put=8_640, get=17_280)


def test_heartbeats_follow_batches_and_fill_the_pauses() -> None:
    assert heartbeats(3_600, 1) == Requests(put=3_600)
    assert heartbeats(3_600, 10) == Requests(put=360)
    assert heartbeats(3_600, 60) == Requests(put=360)
    assert heartbeats(3_600, inf) == Requests(put=360)


def test_a_day_has_a_manifest_for_each_batch_and_counts_records_per_object() -> None:
    day = archive_day(ArchiveSettings(trigger_seconds=60), BUSY)
    assert (day.batches, day.manifests, day.objects, day.records_per_object) == (1_440, 1_440, 5_760, 15_000)
    unknown = archive_day(ArchiveSettings(trigger_seconds=60), Load(partitions=4))
    assert (unknown.objects, unknown.records_per_object) == (5_760, None)
    # The sizes of objects are unknown, so each counts as one request.
    assert unknown.requests == day.requests


def test_a_speed_stream_costs_its_checkpoint() -> None:
    once, least = (speed_day(1, BUSY, exactly_once=delivery).requests for delivery in (True, False))
    assert least == Requests(put=86_400 * 3, head=86_400 * 10, list=86_400 * 10, delete=86_400 * 2, get=17_280)
    assert once.get == least.get + 2 * 86_400


def test_amazon_charges_lists_and_parts_as_writes_and_no_deletions() -> None:
    prices = Prices(name="a list", million_writes=5, million_reads=0.5, gb_month=0)
    million = 1_000_000
    found = Requests(put=million, post=million, part=million, list=million, get=million, head=million, delete=million)
    assert (prices.cost(found), found.total) == (4 * 5 + 2 * 0.5, 7 * million)
    assert ASSUMED_PRICES.cost(Requests(list=million)) == 5


def test_memory_is_bounded_by_open_files_and_their_parts() -> None:
    mib = 1024 * 1024
    load = Load(partitions=1, records_per_second=1e6, record_bytes=1_000, folders=100)
    one = Load(partitions=1, records_per_second=1e6, record_bytes=1_000)
    settings = ArchiveSettings(part_bytes=8 * mib)
    assert task_memory(settings, one) == (320 + 8) * mib
    assert task_memory(settings, load) == (320 + 20 * 8 + 128) * mib
    small = Load(partitions=1, records_per_second=10, record_bytes=10, folders=2)
    assert task_memory(settings, small) == 320 * mib + 1_000 + 16 * mib
