"""Kafka holds other records at archived offsets: found, bounded, named; at a start, in a batch, and in a plan."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from tests.archive.small import Small, micros, row_of
from tests.conftest import MakeStream, Produce, Record
from tidemark.archive import rewritten
from tidemark.archive.ledger.history import History
from tidemark.archive.ledger.ledger import read_archived
from tidemark.archive.rewritten import ArchivedRecords, differing
from tidemark.archive.stream.driver import archive
from tidemark.archive.stream.log_check import LogCheck
from tidemark.archive.write.last_records import LastRecords
from tidemark.archive.write.sink import Written
from tidemark.connections.kafka import KafkaConnection
from tidemark.core.errors import PositionError
from tidemark.core.logged_record import AtOffset, LoggedRecord, record_digest
from tidemark.core.manifest import DataFile, DayRows, Manifest
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.definitions.sections import Speed
from tidemark.definitions.stream import Stream
from tidemark.kafka.log_ends import LogEnd
from tidemark.kafka.topics import describe_topic
from tidemark.objects.schema import SCHEMA
from tidemark.reconcile.plan.rewritten import require_same_records
from tidemark.reconcile.plan.step import plan_run
from tidemark.run import Run
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.conformance(30)

START = datetime(2013, 1, 14, 12, tzinfo=UTC)
LOG = TopicPartition(topic="t", topic_id="id", partition=0)


def time_of(offset: int) -> datetime:
    return START + timedelta(seconds=offset)


class Rewritten:
    """A stream over a real topic of one partition, whose archive is written by hand."""

    def __init__(self, small: Small, settings: Settings, produce: Produce) -> None:
        self.small, self.settings, self._produce = small, settings, produce
        (self.log,) = describe_topic(settings.kafka, small.stream.topic)

    def kafka(self, first: int, end: int) -> None:
        """The log holds the archive's records below ``first``, then others, and ends at ``end``."""
        records: list[Record] = []
        for offset in range(end):
            value = self.small.values(offset) if offset < first else b"new %d" % offset
            row: Any = row_of(self.log, offset, time_of(offset), value)
            records.append((row["key"], row["value"], micros(time_of(offset)) // 1000, 0, []))
        self._produce(self.small.stream.topic, records)

    def archive(self, *ends: int, writer: str = "query-a", timestamp_type: int = 0) -> Manifest:
        """Batches that end at these offsets; the last one's manifest."""
        for start, end in zip((0, *ends), ends, strict=False):
            made = self.small.commit(start, end, writer=writer, log=self.log, timestamp_type=timestamp_type)
        return made

    def run(self, on_rewrite: str = "stop") -> Run:
        return Run(
            stream=accepting(self.small.stream, on_rewrite),
            settings=self.settings,
            store=self.small.store,
            layout=self.small.layout,
            name="run-1",
        )

    def plan(self, on_rewrite: str = "stop") -> None:
        """The comparison of step ``plan``."""
        run = self.run(on_rewrite)
        history = read_archived(run.store, run.layout, run.stream).history()
        require_same_records(run, history)

    def check(self, on_rewrite: str = "stop") -> LogCheck:
        return LogCheck.of(accepting(self.small.stream, on_rewrite), self.settings, self.small.store)


def accepting(stream: Stream, on_rewrite: str) -> Stream:
    return stream.model_copy(update={"archive": stream.archive.model_copy(update={"on_rewrite": on_rewrite})})


@pytest.fixture
def world(store: ObjectStore, settings: Settings, make_stream: MakeStream, produce: Produce) -> Rewritten:
    small = Small(store=store, stream=make_stream(), prefix=settings.prefix, path=lambda _: "p", moments=time_of)
    return Rewritten(small, settings, produce)


def text(offset: int, value: bytes) -> str:
    """A record as errors name it."""
    key = None if offset % 5 == 0 else b"k%d" % offset
    return (
        f"offset {offset} of {time_of(offset).isoformat(timespec='milliseconds')}, digest {record_digest(key, value)}"
    )


@pytest.mark.parametrize(
    ("first", "end"),
    [
        (73, 120),  # longer than before; truncated inside an object
        (73, 100),  # equal
        (73, 73),  # shorter: nothing new yet
        (70, 85),  # shorter, truncated between two batches
        (0, 120),  # a lost disk
        (99, 120),
        (100, 100),  # nothing of the archive was lost
        (100, 120),
    ],
)
def test_the_rewritten_range_is_found_to_the_offset_and_both_records_are_named(
    world: Rewritten, first: int, end: int
) -> None:
    world.kafka(first, end)
    world.archive(10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
    if first == 100:
        world.plan()
        world.check().start(None, [world.log])
        return
    compares: tuple[Callable[[], None], ...] = (world.plan, lambda: world.check().start(None, [world.log]))
    for compare in compares:
        with pytest.raises(PositionError) as stopped:
            compare()
        error = stopped.value
        assert error.expected == f"{world.log} {text(99, b'value 99')}"
        found = text(99, b"new 99") + ", leader epoch 0" if end >= 100 else f"ends at offset {end}"
        assert error.found == f"{world.log} {found}"
        assert error.where is not None
        assert f"rewritten: {world.log} [{first}, 100), topic id {world.log.topic_id}" in error.where
        assert "archive.on_rewrite" in (error.hint or "")


def test_an_accepted_rewrite_is_logged_with_its_range_and_stops_nothing(
    world: Rewritten, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    world.kafka(73, 120)
    world.archive(50, 100)
    world.check("continue").start(None, [world.log])
    (line,) = [json.loads(line) for line in capfd.readouterr().out.splitlines() if '"event": "rewritten"' in line]
    assert (line["level"], line["partition"], line["start"], line["end"]) == ("error", 0, 73, 100)
    world.plan("continue")
    assert f"{world.log} [73, 100)" in caplog.text
    # After the archive's next batch its last record is Kafka's again.
    world.small.values = lambda offset: b"new %d" % offset
    world.small.commit(100, 120, log=world.log)
    world.plan()


def test_a_stream_with_a_checkpoint_compares_its_own_last_record(world: Rewritten) -> None:
    world.kafka(73, 120)
    before = world.archive(50, 73)
    world.archive(50, 100, writer="refill-run")
    world.check().start(before, [world.log])
    with pytest.raises(PositionError):
        world.check().start(None, [world.log])  # without one, what anyone archived counts


def test_records_that_retention_removed_or_an_import_wrote_are_not_compared(world: Rewritten) -> None:
    world.kafka(73, 120)
    assert world.archive(50, 100, timestamp_type=-1).last == ()
    world.plan()
    world.small.commit(60, 100, writer="query-b", log=world.log)
    with pytest.raises(PositionError):
        world.plan()
    admin = AdminClient({"bootstrap.servers": world.settings.kafka_bootstrap})
    for deleted in admin.delete_records([KafkaPartition(world.log.topic, 0, 110)]).values():
        deleted.result(60)
    world.plan()


def test_neither_a_stream_nor_a_run_begins_over_other_records(world: Rewritten, spark: SparkSession) -> None:
    world.kafka(73, 120)
    world.archive(50, 100)
    before = world.small.objects()
    starts: tuple[Callable[[], object], ...] = (
        lambda: archive(spark, world.small.stream, world.settings, available_now=True),
        lambda: plan_run(world.run(), [START.date()], False),
    )
    for start in starts:
        with pytest.raises(PositionError, match=re.escape(f"rewritten: {world.log} [73, 100)")):
            start()
    assert world.small.objects() == before


def test_a_stream_compares_its_logs_before_each_manifest(
    world: Rewritten, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the log had been truncated after the comparison at the start."""

    def start(check: LogCheck, _before: Manifest | None, logs: Sequence[TopicPartition]) -> None:
        check._last = {item.log: item for item in check.records.last(logs)}

    monkeypatch.setattr(LogCheck, "start", start)
    world.kafka(73, 120)
    world.archive(50, 100)
    with pytest.raises(PositionError, match=re.escape(f"rewritten: {world.log} [73, 100)")):
        archive(spark, world.small.stream, world.settings, available_now=True)
    history = read_archived(world.small.store, world.small.layout, world.small.stream)
    assert history.manifests == 2


class Leaders:
    """Replaces Kafka's answers about logs' ends."""

    epoch: int | None = 1

    def ask(self, logs: Any) -> dict[TopicPartition, LogEnd]:
        return {log: LogEnd(offset=1_000, leader_epoch=self.epoch) for log in logs}


class Batch:
    """A stream's check whose Kafka is a dictionary of records; ``asked`` are the offsets that were read from it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stream: Stream) -> None:
        self.kafka: dict[int, LoggedRecord] = {}
        self.asked: list[int] = []
        self.leaders = Leaders()
        kafka = KafkaConnection.plain("kafka:9092")
        records = ArchivedRecords(store=Any, layout=Any, kafka=kafka, history=lambda: History([]))  # type: ignore[arg-type]
        self.check = LogCheck(stream=stream, records=records)
        self.check._ends = self.leaders  # type: ignore[assignment]
        monkeypatch.setattr("tidemark.archive.rewritten.differing", self._differing)
        monkeypatch.setattr("tidemark.archive.stream.log_check.differing", self._differing)

    def _differing(self, _kafka: KafkaConnection, archived: Any, _ends: Any) -> Any:
        found = []
        for item in archived:
            self.asked.append(item.offset)
            there = self.kafka.get(item.offset)
            if there is None or not item.is_same(there):
                found.append((item, AtOffset(record=there, log_start=0, end=1_000, compacted=False)))
        return tuple(found)

    def commit(self, last: int, *, truncated: bool = False) -> tuple[LoggedRecord, ...]:
        """A batch of ten offsets up to ``last``; ``truncated``: Kafka has another record there when it was read."""
        record = LoggedRecord(log=LOG, offset=last, timestamp_us=last, digest="read")
        self.kafka[last] = replace(record, digest="new") if truncated else record
        self.asked.clear()
        ranges = {LOG: OffsetRange(start=last - 9, end=last + 1)}
        found = self.check.before_commit(ranges, Written(files=(file_of(ranges[LOG]),), last=(record,)))
        self.check._last = {item.log: item for item in found}
        return found


def file_of(span: OffsetRange) -> DataFile:
    day = DayRows(day=START.date(), rows=len(span), first_offset=span.start, last_offset=span.end - 1)
    return DataFile(
        key=f"data/{span.start}",
        log=LOG,
        range=span,
        rows=len(span),
        bytes=1,
        first_offset=span.start,
        last_offset=span.end - 1,
        min_timestamp_us=0,
        max_timestamp_us=0,
        days=(day,),
        checksum="",
        sha256="",
    )


@pytest.fixture
def batch(monkeypatch: pytest.MonkeyPatch) -> Batch:
    stream = Stream(name="s", topic="t", value_schema="n INT", speed=Speed(topic="t.live", dead_letter_topic="t.dead"))
    return Batch(monkeypatch, stream)


def test_only_a_batch_with_another_leader_reads_records_to_compare(batch: Batch) -> None:
    assert batch.commit(9)[0].leader_epoch == 1
    assert batch.asked == [9]  # the first leader that the check sees
    batch.commit(19)
    assert batch.asked == []
    batch.leaders.epoch = 2
    assert batch.commit(29)[0].leader_epoch == 2
    assert batch.asked == [19, 29]
    batch.commit(39)
    assert batch.asked == []
    batch.leaders.epoch = None  # a broker that does not report it: each batch is compared
    batch.commit(49)
    batch.commit(59)
    assert batch.asked == [49, 59]


def test_another_record_before_the_batch_stops_it_before_its_manifest(batch: Batch) -> None:
    batch.commit(9)
    batch.leaders.epoch = 2
    batch.kafka[9] = replace(batch.kafka[9], digest="new")
    with pytest.raises(
        PositionError, match=r"expected t-0 offset 9 .* digest read, leader epoch 1, found t-0 offset 9"
    ):
        batch.commit(19)
    with pytest.raises(PositionError):  # and again at the next attempt
        batch.commit(19)


def test_a_log_truncated_during_the_read_stops_the_batch_and_names_its_objects(batch: Batch) -> None:
    batch.commit(9)
    batch.leaders.epoch = 2
    with pytest.raises(PositionError) as stopped:
        batch.commit(19, truncated=True)
    assert stopped.value.objects == ("data/10",)
    assert "t-0 [10, 20)" in str(stopped.value)
    assert "data/10" in (stopped.value.hint or "")


def test_a_quiet_log_keeps_its_last_record_in_later_manifests(batch: Batch) -> None:
    quiet = LoggedRecord(log=replace(LOG, partition=1), offset=3, timestamp_us=3, digest="q", leader_epoch=1)
    batch.check._last[quiet.log] = quiet
    assert batch.commit(9)[::-1] == (replace(batch.kafka[9], leader_epoch=1), quiet)


def test_the_last_row_of_each_log_is_kept_over_batches() -> None:
    logs = [replace(LOG, partition=number) for number in range(3)]
    rows = [row_of(logs[at % 2 if at < 7 else 2], at, time_of(at), b"v%d" % at) for at in range(10)]
    watched = LastRecords((log, OffsetRange(start=0, end=10)) for log in logs)
    batches = [
        pa.RecordBatch.from_pylist(part, schema=SCHEMA) for part in (rows[:3], [], rows[3:6], rows[6:7], rows[7:])
    ]
    assert list(watched.watch(batches)) == batches
    assert sorted(watched.found(), key=lambda item: item.log) == [
        LoggedRecord(
            log=logs[partition],
            offset=at,
            timestamp_us=micros(time_of(at)),
            digest=record_digest(None if at == 5 else b"k%d" % at, b"v%d" % at),
        )
        for partition, at in enumerate((6, 5, 9))
    ]


@pytest.mark.parametrize(("log_start", "asked"), [(10, 0), (9, 1)])
def test_a_record_that_retention_took_needs_no_right_to_read_the_topics_settings(
    monkeypatch: pytest.MonkeyPatch, log_start: int, asked: int
) -> None:
    """Only READ on the source is granted. The log is quiet, and its last archived record has expired."""
    settings: list[str] = []

    def config(_: str, topic: str) -> dict[str, str]:
        settings.append(topic)
        return {"cleanup.policy": "compact"}

    monkeypatch.setattr(rewritten, "records_at", lambda *_: {})
    monkeypatch.setattr(rewritten, "log_starts", lambda *_: {LOG: log_start})
    monkeypatch.setattr(rewritten, "topic_config", config)
    last = LoggedRecord(log=LOG, offset=9, timestamp_us=0, digest="a")
    assert differing(KafkaConnection.plain("kafka:9092"), [last], {LOG: LogEnd(offset=10, leader_epoch=1)}) == ()
    assert settings == [LOG.topic] * asked
