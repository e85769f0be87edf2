"""How long Kafka keeps unarchived records, also if the archive stream never ran."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from tests.batch.logs import Log
from tests.conftest import MakeStream, MakeTopic, Produce
from tidemark.archive.ledger.ledger import read_archived
from tidemark.archive.retention import Retention, Waiting, read_retention
from tidemark.core.errors import ServiceError
from tidemark.settings import Settings

pytestmark = pytest.mark.conformance(55)

HOUR_MS = 3_600_000
TEN_HOURS = {"retention_ms": str(10 * HOUR_MS)}
MakeLog = Callable[..., Log]


@pytest.fixture
def make_log(settings: Settings, make_stream: MakeStream, make_topic: MakeTopic, produce: Produce) -> MakeLog:
    """A stream over a topic of two partitions with these settings."""

    def make(alarm_hours: float = 3, **config: str) -> Log:
        topic = make_topic(2, **config)
        stream = make_stream(topic=topic, archive={"retention_alarm_hours": alarm_hours})
        return Log(stream=stream, settings=settings, produce_records=produce)

    return make


def read(log: Log, now: datetime) -> Retention:
    history = read_archived(log.store, log.layout, log.stream).history()
    return read_retention(log.settings.kafka, log.stream, history.first_missing, now)


def moment() -> tuple[datetime, int]:
    """The current time, and the same in ms."""
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=now_ms), now_ms


def test_the_first_unarchived_record_gives_the_hours_left(make_log: MakeLog) -> None:
    log = make_log(**TEN_HOURS)
    now, now_ms = moment()
    for age in (8, 5, 1):
        log.produce(10, now_ms - age * HOUR_MS)
    log.produce(10, now_ms - HOUR_MS, partition=1)
    first, second = log.owner(), log.owner(1)
    # The stream never ran: all records are unarchived.
    found = read(log, now)
    assert found.waiting == (
        Waiting(log=first, offset=0, timestamp_ms=now_ms - 8 * HOUR_MS, hours_left=2.0),
        Waiting(log=second, offset=0, timestamp_ms=now_ms - HOUR_MS, hours_left=9.0),
    )
    assert (found.hours_left, found.late, found.summary) == (2.0, (found.waiting[0],), "2.0 h left")
    (line,) = found.lines()
    assert line.startswith(f"{first}: offset 0 is unarchived")
    assert line.endswith("the topic keeps 10.0 h: 2.0 h left (alarm below 3.0 h)")
    # The stream died after the first ten, and a manifest in the middle was lost: the gap counts, not the end.
    log.archive(0, 10)
    log.archive(15, 30)
    log.archive(0, 10, partition=1, writer="query-b")
    found = read(log, now)
    assert found.waiting == (Waiting(log=first, offset=10, timestamp_ms=now_ms - 5 * HOUR_MS, hours_left=5.0),)
    assert (found.late, found.lines()) == ((), ())
    # Later the same record may be deleted.
    found = read(log, now + timedelta(hours=6))
    assert (found.hours_left, found.late) == (-1.0, found.waiting)
    assert found.summary == "no time left: Kafka may delete it at any moment"
    log.archive(10, 15, writer="refill-a")
    found = read(log, now)
    assert (found.waiting, found.hours_left, found.summary) == ((), None, "nothing waits")


def test_a_short_retention_lowers_the_alarm_to_half_of_it(make_log: MakeLog) -> None:
    assert read(make_log(alarm_hours=24, **TEN_HOURS), moment()[0]).alarm_hours == 5.0
    assert read(make_log(alarm_hours=24), moment()[0]).alarm_hours == 24.0


@pytest.mark.parametrize(
    ("config", "summary"),
    [
        ({}, "no limit"),
        ({"cleanup_policy": "compact", "retention_ms": "1"}, "no limit"),
        ({"retention_bytes": "1000000"}, "no limit; not estimated: retention.bytes"),
    ],
)
def test_a_topic_that_keeps_records_of_any_age_has_no_limit(
    make_log: MakeLog, config: dict[str, str], summary: str
) -> None:
    log = make_log(**config)
    log.produce(3, 1000)
    found = read(log, moment()[0])
    assert (found.summary, found.hours_left, found.late, len(found.waiting)) == (summary, None, (), 1)


def test_the_retention_of_a_missing_topic_is_an_error(make_log: MakeLog) -> None:
    log = make_log()
    log.stream = log.stream.model_copy(update={"topic": "no.such.topic"})
    with pytest.raises(ServiceError, match=r"no\.such\.topic"):
        read(log, moment()[0])


def test_a_record_of_a_year_without_calendar_has_its_hours_left(make_log: MakeLog) -> None:
    log = make_log(**TEN_HOURS)
    log.produce(1, -(10**15))
    (line,) = read(log, moment()[0]).lines()
    assert (
        "offset 0 is unarchived, its record is of no year from 1 to 9999 (-1000000000000000000 µs since 1970)" in line
    )
