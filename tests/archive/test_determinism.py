"""What survives what: every partitioner, extractor and rotation, after a crash and after the checkpoint was lost.

Each cell is measured: the archive as read through the platform, and the raw objects as somebody sees them who ignores
manifests. docs/archive.md shows the outcomes; `--write-tables` writes them there, and without that option each test
holds the page against what it measured.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.archive.conftest import through
from tests.archive.oracle import Oracle
from tests.archive.running import DEADLINE_S, running
from tests.conftest import MakeStream, Produce, Record
from tests.faults import FaultProxy, Rule
from tests.waiting import wait_until
from tidemark.archive.commit import read_manifests
from tidemark.archive.stream import archive
from tidemark.batch.slices import read_slices
from tidemark.core.errors import ServiceError
from tidemark.core.layout import Layout
from tidemark.core.plan import Target
from tidemark.core.planner import make_plan
from tidemark.kafka import describe_topic
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.stack.local import PROJECT
from tidemark.streams import Stream

PAGE = PROJECT / "docs" / "archive.md"
BEGIN, END = "<!-- outcomes: measured by tests/archive/test_determinism.py -->\n", "<!-- end of outcomes -->\n"
HEAD = (
    "| Partitioner | Extractor | Files close by | Restart: archive | Restart: raw objects | Checkpoint lost: archive "
    "| Checkpoint lost: raw objects |\n|---|---|---|---|---|---|---|\n"
)
# A quarter to midnight: the records' days and hours change on the way.
START_S = int(datetime(2013, 1, 14, 23, 45, tzinfo=UTC).timestamp())
STEP_S = 100
PARTITIONS, RECORDS = 2, 48
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
    "flush_size": {"flush_size": 4},
    "max_bytes": {"max_bytes": 100},
    "rotate_interval_seconds": {"rotate_interval_seconds": 5 * STEP_S},
    "rotate_schedule": {"rotate_schedule": "0 0 1 1 *", "min_offsets_per_trigger": 20, "trigger_seconds": 0},
}
CELLS = list(product(LAYOUTS, ROTATIONS))


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> Iterator[dict[tuple[tuple[str, str], str], tuple[str, ...]]]:
    """Where tests put what they measured; written into the page at the end where that was asked for."""
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


def some(count: int, *, start: int = 0) -> list[Record]:
    """Records of both partitions in turn, some of them late, whose field ``at`` is half a day behind."""
    found: list[Record] = []
    for n in range(start, start + count):
        moment = START_S + STEP_S * (n - 9 if n % 7 == 3 else n)
        value = f'{{"n":{n % 3},"at":{moment - 43_200}}}'
        found.append((None, value.encode(), moment * 1000, n % PARTITIONS, []))
    return found


def verdict(found: Sequence[tuple[int, int]], records: int) -> str:
    """How often the records are there: the oracle is what was produced."""
    expected = {(partition, offset) for partition in range(PARTITIONS) for offset in range(records // PARTITIONS)}
    copies = Counter(found)
    lost, stray = expected - copies.keys(), copies.keys() - expected
    if lost or stray:
        return f"{len(lost)} lost, {len(stray)} stray"
    return "each record once" if copies.total() == len(expected) else "some records twice"


def platform(spark: SparkSession, stream: Stream, settings: Settings) -> list[tuple[int, int]]:
    """The archive's rows as a rebuild reads them: the planner's slices of committed objects."""
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
            Target(log=log, origin=0, end=ends[log.partition], log_start=0, high_watermark=ends[log.partition])
            for log in describe_topic(settings.kafka_bootstrap, stream.topic)
        ],
        manifests=manifests,
        seals=[],
    )
    rows = read_slices(spark, settings, stream, plan.slices).select("partition", "offset").collect()
    return [(row.partition, row.offset) for row in rows]


def raw(oracle: Oracle) -> list[tuple[int, int]]:
    """Every row of every object below the stream's data, listed by a manifest or not."""
    rows = [row for key in oracle.keys("data") for row in oracle.table(key).to_pylist()]
    return [(row["partition"], row["offset"]) for row in rows]


def run(spark: SparkSession, stream: Stream, settings: Settings) -> None:
    """Archive everything there is: by a run to the end, or as a lasting stream whose schedule says so."""
    if stream.archive.rotate_schedule is None:
        archive(spark, stream, settings, available_now=True)
        return
    with running(spark, stream, settings) as lasting:  # moments that passed before the start are made up for
        lasting.until_waiting()


def run_into(refused: Rule, spark: SparkSession, stream: Stream, settings: Settings) -> None:
    """The same, until the refusal ends it."""
    if stream.archive.rotate_schedule is None:
        archive(spark, stream, settings, available_now=True)
        return
    with running(spark, stream, settings) as lasting:
        wait_until(lasting.ended.done, f"the stream dies of {refused.answer}", DEADLINE_S)


@pytest.mark.parametrize(
    ("layout", "rotation"),
    CELLS,
    ids=[f"{'-'.join(layout)}-{rotation}".replace(" ", "_") for layout, rotation in CELLS],
)
def test_what_a_crash_and_a_lost_checkpoint_leave_is_what_the_page_says(
    spark: SparkSession,
    settings: Settings,
    make_stream: MakeStream,
    produce: Produce,
    proxy: FaultProxy,
    outcomes: dict[tuple[tuple[str, str], str], tuple[str, ...]],
    request: pytest.FixtureRequest,
    layout: tuple[str, str],
    rotation: str,
) -> None:
    partitioner, event_time = LAYOUTS[layout]
    options = {"partitioner": partitioner, "max_offsets_per_trigger": 20, **ROTATIONS[rotation]}
    stream = make_stream(
        partitions=PARTITIONS, value_schema="n BIGINT, at BIGINT", event_time=event_time, archive=options
    )
    oracle = Oracle(settings, stream.name)
    produce(stream.topic, some(RECORDS))

    # The second batch's objects are all there, its manifest is refused: the stream dies. Then it is started again.
    through_proxy = through(settings, proxy)
    refused = Rule(method="PUT", pattern=r"/manifests/.*/0{11}1\.json", times=100, answer=(403, "AccessDenied"))
    proxy.add(refused)
    with pytest.raises(ServiceError, match="AccessDenied"):
        run_into(refused, spark, stream, through_proxy)
    assert refused.fired.is_set()
    proxy.clear()
    assert verdict(platform(spark, stream, settings), RECORDS) != "each record once"
    run(spark, stream, through_proxy)
    restart = (
        verdict(platform(spark, stream, settings), RECORDS),
        verdict(raw(oracle), RECORDS),
    )

    # The checkpoint is lost, and its successor reads the topic in batches of another size.
    oracle.delete("checkpoints")
    produce(stream.topic, some(RECORDS // 2, start=RECORDS))
    wider = stream.archive.model_copy(update={"max_offsets_per_trigger": 28})
    run(spark, stream.model_copy(update={"archive": wider}), settings)
    total = RECORDS + RECORDS // 2
    lost = (verdict(platform(spark, stream, settings), total), verdict(raw(oracle), total))

    outcomes[layout, rotation] = (*restart, *lost)
    if not request.config.getoption("--write-tables"):
        assert documented(layout, rotation) == outcomes[layout, rotation]
