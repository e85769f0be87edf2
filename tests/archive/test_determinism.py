"""What survives what: every partitioner, extractor and rotation, after a crash and after the checkpoint was lost.

Each cell is measured: the archive as read through the platform, and the raw objects as somebody sees them who ignores
manifests. docs/explanation/determinism.md shows the outcomes; `--write-tables` writes them there. Without that option
each test compares the page with what it measured.

The cells differ only in what Spark's expressions give a row, in where files end, and in a batch's range and time. So
each is measured on the archive's own writer, called for every batch as the stream's tasks and driver call it. The
stream itself, with its checkpoint, is measured for every partitioner and extractor and for every rotation once.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.archive.conftest import through
from tests.archive.oracle import Oracle
from tests.archive.running import DEADLINE_S, running
from tests.conftest import MakeStream, MakeTopic, Produce, Record
from tests.faults import FaultProxy, Rule
from tests.plans import make_plan
from tests.waiting import wait_until
from tidemark.archive.manifests import commit_batch, read_manifests
from tidemark.archive.read import read_slices
from tidemark.archive.stream.driver import archive
from tidemark.archive.write.file import FileTarget
from tidemark.archive.write.task import FileLimits, write_files
from tidemark.core.errors import ServiceError
from tidemark.core.layout import Layout
from tidemark.core.manifest import DataFile
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.core.plan import Slice, Target
from tidemark.definitions.stream import Stream
from tidemark.installation import PROJECT
from tidemark.kafka.topics import describe_topic
from tidemark.objects.schema import SCHEMA
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.spark.kafka_source import read_ranges
from tidemark.spark.paths import partition_path
from tidemark.spark.records import day, records

pytestmark = pytest.mark.conformance(5, 8)

PAGE = PROJECT / "docs" / "explanation" / "determinism.md"
BEGIN, END = "<!-- outcomes: measured by tests/archive/test_determinism.py -->\n", "<!-- end of outcomes -->\n"
HEAD = (
    "| Partitioner | Extractor | Files close by | Restart: archive | Restart: raw objects | Checkpoint lost: archive "
    "| Checkpoint lost: raw objects |\n|---|---|---|---|---|---|---|\n"
)
# A quarter to midnight: the records' days and hours change on the way.
START_S = int(datetime(2013, 1, 14, 23, 45, tzinfo=UTC).timestamp())
STEP_S = 100
PARTITIONS, RECORDS, LATER = 2, 24, 12
PER_LOG = (RECORDS + LATER) // PARTITIONS
# Offsets of each log by batch: of the stream that crashes, and of its successor without a checkpoint.
FIRST, SECOND = (range(5), range(5, 10), range(10, 12)), (range(9), range(9, 18))
FIELD_TIME = {"extractor": "record_field", "field": "$.at", "format": "epoch_s"}
# A folder per millisecond of wall clock: batches of different times can't share one.
MOMENT = {"type": "time", "path_format": "'at='yyyyMMddHHmmssSSS", "clock": "wall_clock"}
LAYOUTS: dict[tuple[str, str], tuple[dict[str, Any], dict[str, Any]]] = {
    ("default", "–"): ({"type": "default"}, {"extractor": "record"}),
    ("field", "–"): ({"type": "field", "fields": ["$.n"]}, {"extractor": "record"}),
    ("time", "record"): ({"type": "time", "path_format": "hourly"}, {"extractor": "record"}),
    ("time", "record field"): ({"type": "time", "path_format": "daily"}, FIELD_TIME),
    ("time", "wall clock"): (MOMENT, {"extractor": "record"}),
}
ROTATIONS: dict[str, dict[str, Any]] = {
    "flush_size": {"flush_size": 3},
    "max_bytes": {"max_bytes": 60},
    "rotate_interval_seconds": {"rotate_interval_seconds": 5 * STEP_S},
    "rotate_schedule": {"rotate_schedule": "0 0 1 1 *", "min_offsets_per_trigger": RECORDS // 2, "trigger_seconds": 0},
}
CELLS = list(product(LAYOUTS, ROTATIONS))
STREAMS = [
    (("default", "–"), "rotate_schedule"),
    (("field", "–"), "flush_size"),
    (("time", "record"), "rotate_interval_seconds"),
    (("time", "record field"), "max_bytes"),
    (("time", "wall clock"), "flush_size"),
]
Read = Callable[[Sequence[Slice]], list[tuple[int, int]]]


def names(cells: Sequence[tuple[tuple[str, str], str]]) -> list[str]:
    return [f"{'-'.join(layout)}-{rotation}".replace(" ", "_") for layout, rotation in cells]


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> Iterator[dict[tuple[tuple[str, str], str], tuple[str, ...]]]:
    """What tests measured; with --write-tables it is written into the page at the end."""
    measured: dict[tuple[tuple[str, str], str], tuple[str, ...]] = {}
    yield measured
    if request.config.getoption("--write-tables") and list(measured) == CELLS:
        rows = [
            f"| {' | '.join((*layout, f'`{rotation}`', *found))} |\n" for (layout, rotation), found in measured.items()
        ]
        text = PAGE.read_text(encoding="utf-8")
        before, after = text.split(BEGIN)[0], text.split(END)[1]
        PAGE.write_text(f"{before}{BEGIN}{HEAD}{''.join(rows)}{END}{after}", encoding="utf-8")


def documented(layout: tuple[str, str], rotation: str) -> tuple[str, ...]:
    head = re.escape(f"| {layout[0]} | {layout[1]} | `{rotation}` | ")
    (row,) = re.findall(rf"^{head}(.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return tuple(row.split(" | "))


def make_records(count: int, *, start: int = 0) -> list[Record]:
    """Records of both partitions in turn, some of them late: their field ``at`` is half a day earlier."""
    found: list[Record] = []
    for n in range(start, start + count):
        moment = START_S + STEP_S * (n - 9 if n % 7 == 3 else n)
        value = f'{{"n":{int(n % 5 == 0)},"at":{moment - 43_200}}}'  # four of five share a folder
        found.append((None, value.encode(), moment * 1000, n % PARTITIONS, []))
    return found


def verdict(found: Sequence[tuple[int, int]], records: int) -> str:
    """How often each produced record is archived."""
    expected = {(partition, offset) for partition in range(PARTITIONS) for offset in range(records // PARTITIONS)}
    copies = Counter(found)
    lost, stray = expected - copies.keys(), copies.keys() - expected
    if lost or stray:
        return f"{len(lost)} lost, {len(stray)} stray"
    return "each record once" if copies.total() == len(expected) else "some records twice"


def platform(stream: Stream, settings: Settings, read: Read) -> list[tuple[int, int]]:
    """The slices of the archive that a rebuild would read."""
    manifests = read_manifests(ObjectStore(settings), Layout(prefix=settings.prefix, stream=stream.name))
    ends = Counter[int]()
    for item in (item for manifest in manifests for item in manifest.ranges):
        ends[item.log.partition] = max(ends[item.log.partition], item.range.end)
    plan = make_plan(
        stream=stream.name,
        time_zone=stream.time_zone,
        run="determinism",
        requested=sorted({item.day for one in manifests for file in one.files for item in file.days}),
        targets=[
            Target(log=log, start=0, end=ends[log.partition], log_start=0, high_watermark=ends[log.partition])
            for log in describe_topic(settings.kafka, stream.topic)
        ],
        manifests=manifests,
        seals=[],
    )
    return read(plan.slices)


def by_spark(spark: SparkSession, settings: Settings, stream: Stream) -> Read:
    """Slices as a rebuild reads them."""

    def read(slices: Sequence[Slice]) -> list[tuple[int, int]]:
        rows = read_slices(spark, settings, slices).select("partition", "offset").collect()
        return [(row.partition, row.offset) for row in rows]

    return read


def by_oracle(oracle: Oracle) -> Read:
    """Slices read with pyarrow alone."""

    def read(slices: Sequence[Slice]) -> list[tuple[int, int]]:
        rows = ((item, row) for item in slices for row in oracle.table(item.key).to_pylist())
        return [(row["partition"], row["offset"]) for item, row in rows if row["offset"] in item.range]

    return read


def raw(oracle: Oracle) -> list[tuple[int, int]]:
    """Every row of every object below the stream's data, listed by a manifest or not."""
    rows = [row for key in oracle.keys("data") for row in oracle.table(key).to_pylist()]
    return [(row["partition"], row["offset"]) for row in rows]


def run(spark: SparkSession, stream: Stream, settings: Settings) -> None:
    """Archive all records: by a run to the end, or by a continuous stream with a schedule."""
    if stream.archive.rotate_schedule is None:
        archive(spark, stream, settings, available_now=True)
        return
    with running(spark, stream, settings) as lasting:  # at the start it archives all records
        lasting.until_waiting()


def run_into(refused: Rule, spark: SparkSession, stream: Stream, settings: Settings) -> None:
    """Archive all records, until a refused request ends it."""
    if stream.archive.rotate_schedule is None:
        archive(spark, stream, settings, available_now=True)
        return
    with running(spark, stream, settings) as lasting:
        wait_until(lasting.ended.done, f"the stream dies of {refused.answer}", DEADLINE_S)


@pytest.fixture(scope="module")
def topic(make_topic: MakeTopic, produce: Produce) -> str:
    """All records of every cell."""
    name = make_topic(PARTITIONS)
    produce(name, make_records(RECORDS + LATER))
    return name


Rows = Callable[[Stream, int], pa.Table]


@pytest.fixture(scope="module")
def rows(spark: SparkSession, settings: Settings) -> Rows:
    """The rows of the whole topic with path and day, as tasks get them in a batch of that time (µs UTC)."""
    known: dict[object, pa.Table] = {}

    def read(stream: Stream, clock_us: int) -> pa.Table:
        path = partition_path(stream, clock_us)
        by_clock = stream.archive.partitioner.model_dump().get("clock") == "wall_clock"
        asked = (repr(stream.archive.partitioner), repr(stream.event_time), clock_us if by_clock else None)
        if asked not in known:
            logs = describe_topic(settings.kafka, stream.topic)
            whole = dict.fromkeys(logs, OffsetRange(start=0, end=PER_LOG))
            frame = records(read_ranges(spark, settings, whole), stream).select(
                *SCHEMA.names,
                (F.concat(F.lit("partition="), "partition") if path is None else path).alias("path"),
                day(stream).alias("day"),
            )
            known[asked] = frame.toArrow().sort_by("offset")
        return known[asked]

    return read


@dataclass(kw_only=True)
class Writer:
    """A stream's writer without Spark and checkpoint: it writes batches as tasks and driver do."""

    stream: Stream
    store: ObjectStore
    logs: Sequence[TopicPartition]
    rows: Rows
    name: str
    arrow_rows: int

    @property
    def layout(self) -> Layout:
        return Layout(prefix="", stream=self.stream.name)

    def write(self, batch: int, offsets: range) -> list[DataFile]:
        """Upload the batch's objects. The batch's time is that of its write-ahead log: of this writer and batch."""
        rows = self.rows(self.stream, (START_S + 1000 * batch + len(self.name)) * 1_000_000)
        in_batch = pc.field("offset").isin(list(offsets))
        target = FileTarget(
            store=self.store,
            layout=self.layout,
            part_bytes=self.stream.archive.part_bytes,
            settings=self.stream.archive_settings,
        )
        files = []
        for log in self.logs:  # a task each
            own = rows.filter(in_batch & (pc.field("partition") == log.partition)).combine_chunks()
            span = OffsetRange(start=offsets.start, end=offsets.stop)
            arriving = own.to_batches(max_chunksize=self.arrow_rows)
            files += write_files(arriving, [(log, span)], target, FileLimits.of(self.stream.archive))
        return files

    def archive(self, batch: int, offsets: range) -> None:
        """Upload and commit it."""
        ranges = dict.fromkeys(self.logs, OffsetRange(start=offsets.start, end=offsets.stop))
        files = self.write(batch, offsets)
        now_us = START_S * 1_000_000
        commit_batch(
            self.store,
            self.layout,
            self.stream,
            writer=self.name,
            batch=batch,
            ranges=ranges,
            files=files,
            now_us=now_us,
        )


@pytest.mark.parametrize(("layout", "rotation"), CELLS, ids=names(CELLS))
def test_a_crash_and_a_lost_checkpoint_leave_what_the_page_documents(
    settings: Settings,
    store: ObjectStore,
    make_stream: MakeStream,
    topic: str,
    rows: Rows,
    outcomes: dict[tuple[tuple[str, str], str], tuple[str, ...]],
    request: pytest.FixtureRequest,
    layout: tuple[str, str],
    rotation: str,
) -> None:
    partitioner, event_time = LAYOUTS[layout]
    stream = make_stream(
        topic=topic,
        value_schema="n BIGINT, at BIGINT",
        event_time=event_time,
        archive={"partitioner": partitioner, **ROTATIONS[rotation]},
    )
    oracle = Oracle(settings, stream.name)
    read = by_oracle(oracle)

    def writer(name: str, *, arrow_rows: int) -> Writer:
        logs = describe_topic(settings.kafka, topic)
        return Writer(stream=stream, store=store, logs=logs, rows=rows, name=name, arrow_rows=arrow_rows)

    # The second batch has all objects but no manifest. The next start writes it with other Arrow batches.
    crashed = writer("first", arrow_rows=3)
    crashed.archive(0, FIRST[0])
    crashed.write(1, FIRST[1])
    assert verdict(platform(stream, settings, read), RECORDS) != "each record once"
    retry = writer("first", arrow_rows=1000)
    for batch, offsets in list(enumerate(FIRST))[1:]:
        retry.archive(batch, offsets)
    restart = (verdict(platform(stream, settings, read), RECORDS), verdict(raw(oracle), RECORDS))
    ends = any(not key.endswith("+0000.parquet") for key in oracle.keys("data"))
    assert ends == (rotation != "rotate_schedule"), "files end in the middle of a batch, but for the schedule's"

    # The checkpoint is lost, and the next writer reads the topic in batches of another size.
    successor = writer("successor", arrow_rows=1000)
    for batch, offsets in enumerate(SECOND):
        successor.archive(batch, offsets)
    total = RECORDS + LATER
    lost = (verdict(platform(stream, settings, read), total), verdict(raw(oracle), total))

    outcomes[layout, rotation] = (*restart, *lost)
    if not request.config.getoption("--write-tables"):
        assert documented(layout, rotation) == outcomes[layout, rotation]


@pytest.mark.parametrize(("layout", "rotation"), STREAMS, ids=names(STREAMS))
def test_the_stream_leaves_what_the_page_documents(
    spark: SparkSession,
    settings: Settings,
    make_stream: MakeStream,
    produce: Produce,
    proxy: FaultProxy,
    request: pytest.FixtureRequest,
    layout: tuple[str, str],
    rotation: str,
) -> None:
    partitioner, event_time = LAYOUTS[layout]
    options = {"partitioner": partitioner, "max_offsets_per_trigger": RECORDS // 2, **ROTATIONS[rotation]}
    stream = make_stream(
        partitions=PARTITIONS, value_schema="n BIGINT, at BIGINT", event_time=event_time, archive=options
    )
    oracle, read = Oracle(settings, stream.name), by_spark(spark, settings, stream)
    produce(stream.topic, make_records(RECORDS))

    # The second batch has all objects, but its manifest is refused: the stream fails. Then it is restarted.
    through_proxy = through(settings, proxy)
    refused = Rule(method="PUT", pattern=r"/manifests/.*/0{11}1\.json", times=100, answer=(403, "AccessDenied"))
    proxy.add(refused)
    with pytest.raises(ServiceError, match="AccessDenied"):
        run_into(refused, spark, stream, through_proxy)
    assert refused.fired.is_set()
    proxy.clear()
    run(spark, stream, through_proxy)
    restart = (verdict(platform(stream, settings, read), RECORDS), verdict(raw(oracle), RECORDS))

    # The checkpoint is lost, and the next writer reads the topic in batches of another size.
    oracle.delete("checkpoints")
    produce(stream.topic, make_records(LATER, start=RECORDS))
    wider = stream.archive.model_copy(update={"max_offsets_per_trigger": 20})
    run(spark, stream.model_copy(update={"archive": wider}), settings)
    total = RECORDS + LATER
    lost = (verdict(platform(stream, settings, read), total), verdict(raw(oracle), total))

    if not request.config.getoption("--write-tables"):
        assert documented(layout, rotation) == (*restart, *lost)
