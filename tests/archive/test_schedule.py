"""Schedules by the wall clock, and a stream that archives all records at each moment."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import SparkSession

from tests.archive.conftest import through
from tests.archive.oracle import Oracle
from tests.archive.running import DEADLINE_S, running
from tests.conftest import MakeStream, Produce
from tests.faults import FaultProxy, Rule
from tests.waiting import wait_until
from tidemark.archive.stream.driver import archive
from tidemark.archive.stream.schedule import Alarm, Schedule
from tidemark.settings import Settings
from tidemark.spark import streaming

pytestmark = pytest.mark.conformance(8)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def moments(cron: str, zone: str, after: str, count: int) -> list[str]:
    """The next moments, as clocks in the zone show them."""
    schedule, found = Schedule(cron=cron, zone=ZoneInfo(zone)), [at(after)]
    for _ in range(count):
        found.append(schedule.next(found[-1]))
    return [moment.astimezone(ZoneInfo(zone)).isoformat(timespec="minutes") for moment in found[1:]]


@pytest.mark.parametrize(
    ("cron", "zone", "after", "expected"),
    [
        ("0 * * * *", "UTC", "2026-01-01T10:00:00Z", ["2026-01-01T11:00+00:00", "2026-01-01T12:00+00:00"]),
        ("0 * * * *", "UTC", "2026-01-01T10:59:59.999999Z", ["2026-01-01T11:00+00:00"]),
        ("15 6 * * 1", "Asia/Kolkata", "2026-01-01T00:00:00Z", ["2026-01-05T06:15+05:30", "2026-01-12T06:15+05:30"]),
        ("0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", ["2028-02-29T00:00+00:00"]),
        # Clocks go from 02:00 to 03:00: the day keeps its moment, and the skipped hour adds none.
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", ["2026-03-29T03:30+02:00", "2026-03-30T02:30+02:00"]),
        (
            "0 * * * *",
            "Europe/Berlin",
            "2026-03-28T23:30:00Z",
            ["2026-03-29T01:00+01:00", "2026-03-29T03:00+02:00", "2026-03-29T04:00+02:00"],
        ),
        # Clocks go from 03:00 back to 02:00, so that one shows 02:00 and 02:30 twice.
        (
            "*/30 * * * *",
            "Europe/Berlin",
            "2026-10-24T23:59:00Z",
            [
                "2026-10-25T02:00+02:00",
                "2026-10-25T02:30+02:00",
                "2026-10-25T02:00+01:00",
                "2026-10-25T02:30+01:00",
                "2026-10-25T03:00+01:00",
            ],
        ),
        ("0 3 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", ["2026-10-25T03:00+01:00", "2026-10-26T03:00+01:00"]),
        # Half an hour back.
        (
            "45 * * * *",
            "Australia/Lord_Howe",
            "2026-04-04T14:00:00Z",
            ["2026-04-05T01:45+11:00", "2026-04-05T01:45+10:30", "2026-04-05T02:45+10:30"],
        ),
        # A whole day left out.
        ("0 8 * * *", "Pacific/Apia", "2011-12-29T19:00:00Z", ["2011-12-31T08:00+14:00", "2012-01-01T08:00+14:00"]),
    ],
)
def test_the_next_moments_by_clocks_of_the_zone(cron: str, zone: str, after: str, expected: list[str]) -> None:
    assert moments(cron, zone, after, len(expected)) == expected


@pytest.mark.parametrize(
    ("zone", "made_up"),
    [
        ("Europe/Berlin", {"03:15"}),
        ("America/New_York", {"03:15"}),
        ("Australia/Lord_Howe", {"02:45"}),
        ("Asia/Tokyo", set()),
    ],
)
def test_every_2_15_and_14_15_of_a_year_is_a_moment(zone: str, made_up: set[str]) -> None:
    """The oracle reads the clock all year: no moment is missing, and none is added except for the skipped hour."""
    info, now, end = ZoneInfo(zone), at("2026-01-01T00:00:00Z"), at("2027-01-01T00:00:00Z")
    shown = [
        moment
        for moment in (now + timedelta(minutes=n) for n in range(0, 365 * 24 * 60, 15))
        if (clock := moment.astimezone(info)).minute == 15 and clock.hour in {2, 14}
    ]
    schedule, found = Schedule(cron="15 2,14 * * *", zone=info), []
    while (now := schedule.next(now)) < end:
        found.append(now)
    assert set(shown) <= set(found)
    assert {moment.astimezone(info).strftime("%H:%M") for moment in set(found) - set(shown)} == made_up


def test_an_alarm_rings_once_for_all_passed_moments() -> None:
    clock = [at("2026-01-01T10:30:00Z")]
    alarm = Alarm(Schedule(cron="0 * * * *", zone=ZoneInfo("UTC")), lambda: clock[0])
    assert not alarm.rings()
    clock[0] = at("2026-01-01T14:00:00Z")
    assert alarm.rings()
    alarm.set()
    assert not alarm.rings()
    clock[0] = datetime(2026, 1, 1, 15, tzinfo=UTC)
    assert alarm.rings()


def test_at_the_start_and_each_moment_all_records_are_archived(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce
) -> None:
    stream = make_stream(
        partitions=2,
        archive={
            "rotate_schedule": "0 * * * *",
            "trigger_seconds": 0,
            "min_offsets_per_trigger": 1000,
            "max_trigger_delay_seconds": 3600,
            "max_offsets_per_trigger": 7000,
        },
    )
    oracle = Oracle(settings, stream.name)
    clock = [at("2026-01-01T10:30:00Z")]
    alarm = Alarm(Schedule(cron="0 * * * *", zone=ZoneInfo("UTC")), lambda: clock[0])

    def send(count: int, partition: int) -> None:
        produce(stream.topic, [(None, b"{}", 1_358_164_800_000, partition, []) for _ in range(count)])

    def archived() -> list[tuple[int, int, int]]:
        return oracle.archive().ranges

    send(5, 0)
    with running(spark, stream, settings, alarm) as run:
        run.until_waiting()
        assert archived() == [(0, 0, 5)]  # at the start all records are archived
        send(3, 1)
        run.until_waiting()
        clock[0] = at("2026-01-01T11:00:00Z")
        wait_until(lambda: len(archived()) == 2, "the tail of a quiet topic is archived at the full hour", DEADLINE_S)
        run.until_waiting()
        send(2, 0)
        clock[0] = at("2026-01-01T15:00:00Z")  # several moments at once
        wait_until(lambda: len(archived()) == 3, "one run makes up for four moments", DEADLINE_S)
    found = oracle.archive()
    assert found.ranges == [(0, 0, 5), (1, 0, 3), (0, 5, 7)]
    assert found.positions == Counter([(0, n) for n in range(7)] + [(1, n) for n in range(3)])
    assert len({manifest["writer"] for manifest in found.manifests}) == 1


def test_a_moment_during_a_batch_waits_for_the_batchs_end(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce, proxy: FaultProxy
) -> None:
    stream = make_stream(archive={"trigger_seconds": 0, "max_offsets_per_trigger": 5})
    oracle = Oracle(settings, stream.name)
    clock = [at("2026-01-01T10:30:00Z")]
    alarm = Alarm(Schedule(cron="0 * * * *", zone=ZoneInfo("UTC")), lambda: clock[0])

    def full_hour(_: str) -> None:
        clock[0] = at("2026-01-01T11:00:00Z")

    with running(spark, stream, through(settings, proxy), alarm) as run:
        run.until_waiting()
        rule = proxy.add(Rule(method="PUT", pattern="/manifests/", action=full_hour))
        produce(stream.topic, [(None, b"{}", 1_358_164_800_000, 0, []) for _ in range(23)])
        wait_until(lambda: len(oracle.archive().rows) == 23, "everything is archived", DEADLINE_S)
        assert rule.fired.is_set()
    assert oracle.archive().positions == Counter((0, n) for n in range(23))


def test_a_stop_while_all_records_are_archived_takes_effect_after_the_batch(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce, proxy: FaultProxy
) -> None:
    stream = make_stream(archive={"rotate_schedule": "0 * * * *", "max_offsets_per_trigger": 5})
    produce(stream.topic, [(None, b"{}", 1_358_164_800_000, 0, []) for _ in range(23)])
    proxy.add(Rule(method="PUT", pattern="/manifests/", nth=2, action=lambda _: streaming._stop.set()))
    with running(spark, stream, through(settings, proxy)) as run:
        run.ended.result(DEADLINE_S)
    oracle = Oracle(settings, stream.name)
    assert oracle.archive().ranges == [(0, 0, 5), (0, 5, 10)]
    assert [key for key in oracle.keys("checkpoints") if key.endswith("/commits/1")]


def test_available_now_archives_the_tail_below_the_minimum(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce
) -> None:
    stream = make_stream(archive={"min_offsets_per_trigger": 30, "max_offsets_per_trigger": 40})
    produce(stream.topic, [(None, b"{}", 1_358_164_800_000, 0, []) for _ in range(50)])
    archive(spark, stream, settings, available_now=True)
    assert Oracle(settings, stream.name).archive().ranges == [(0, 0, 40), (0, 40, 50)]
