"""Replay: a stream's dead letters go through its decoding and transformation as they are now, each exactly once.

The dead-letter topic is the source here: its offsets are what the marker counts, in the same protocol as the stream's
own exactly-once delivery (``exactly_once.transactions``). What is good now goes to the live topic with the
coordinates of its source record; what is still bad goes back, one attempt further, for the replay after this one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import groupby, pairwise
from threading import Event, Thread
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.core.errors import IncompleteError
from tidemark.core.layout import Layout
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.core.outcome import RunStep
from tidemark.definitions.stream import Stream
from tidemark.kafka.positions import watermarks
from tidemark.kafka.topics import describe_topic, topic_config
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.spark.failures import task_error
from tidemark.spark.process import Transform, classify, load_transform
from tidemark.spark.records import records
from tidemark.speed.exactly_once.transactions import Delivered, Sink, TaskRange, deliver, ensure_markers, marker
from tidemark.speed.output import RecordLimits, output
from tidemark.speed.replay.dead_letters import Kind, NotOurs, chosen, not_ours, read_letters, source_rows, to_deliver
from tidemark.speed.replay.plan import ReplayPlan, ReplayPlans, next_reading

REPLAY = RunStep("replay", dict[str, Any])
TIMEOUT_S = 60
POLL_S = 0.5
_ACCOUNT = "skipped bigint, good bigint, dead bigint, transactions bigint, partition bigint"

# Called with how many offsets of the dead-letter topic are done, and how many there are.
OnProgress = Callable[[int, int], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What became of the dead letters that a replay read: ``read`` is the sum of the four that follow it.

    ``published`` went to the live topic, ``dead_again`` back to the dead-letter topic, ``duplicates`` are further
    copies of one letter. ``not_ours`` stay where they are. ``earlier`` of the first two were delivered before, by a
    replay that did not come to its end. ``lost``: offsets that retention took before any replay, dead letters or not.
    """

    plans: tuple[int, ...] = ()
    read: int = 0
    published: int = 0
    dead_again: int = 0
    duplicates: int = 0
    not_ours: int = 0
    kinds: tuple[NotOurs, ...] = ()
    earlier: int = 0
    lost: int = 0
    transactions: int = 0

    def __add__(self, other: "Replayed") -> "Replayed":
        return Replayed(**{name: getattr(self, name) + getattr(other, name) for name in self.__slots__})

    def to_value(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def replay(
    stream: Stream, settings: Settings, spark: SparkSession, *, on_progress: OnProgress = lambda _done, _all: None
) -> Replayed:
    """Replay what is on the dead-letter topic now, from where the last replay ended; one that was cut off goes on.

    Raises ConflictError where another replay of the stream runs or takes over, IncompleteError where the counts don't
    balance or the transformation drops or multiplies a row, PositionError where marker and plan disagree, ConfigError
    for a transformation that breaks its contract, ServiceError when Kafka or S3 refuses.
    """
    work = _Replay(stream, settings, spark, on_progress)
    last = work.plans.last()
    done = Replayed()
    if last is not None and not work.plans.is_done(last):
        done = work.run(last)
    return done + work.run(work.begin(last))


class _Replay:
    """One stream, its logs as they are at the start, and the sink."""

    def __init__(self, stream: Stream, settings: Settings, spark: SparkSession, on_progress: OnProgress) -> None:
        self._stream, self._settings, self._spark, self._on_progress = stream, settings, spark, on_progress
        self._transform: Transform = load_transform(stream, settings.streams_dir)
        self._source_id = describe_topic(settings.kafka_bootstrap, stream.topic)[0].topic_id
        bootstrap, topic = settings.speed_bootstrap, stream.speed.dead_letter_topic
        self._logs = describe_topic(bootstrap, topic)
        # Letters that this very replay sends back are left for the next one, also where two plans are carried out.
        self._ends = watermarks(bootstrap, self._logs)
        topic_id = self._logs[0].topic_id
        limits = {name: int(topic_config(bootstrap, name)["max.message.bytes"]) for name in (stream.speed.topic, topic)}
        self._limits = RecordLimits(live=limits[stream.speed.topic], dead_letter=limits[topic])
        self._sink = Sink(
            bootstrap=bootstrap,
            group=f"tidemark-replay-{stream.name}-{topic_id}",
            marker_topic=f"{topic}.markers",
            records=stream.speed.transaction_records,
            timeout_s=TIMEOUT_S,
            batch_bytes=min(1_000_000, *limits.values()),
        )
        ensure_markers(bootstrap, self._sink.marker_topic, len(self._logs))
        layout = Layout(prefix=settings.prefix, stream=stream.name)
        self.plans = ReplayPlans.of(ObjectStore(settings), layout, topic_id)

    def begin(self, last: ReplayPlan | None) -> ReplayPlan:
        """Write the plan of a new replay, behind the ``last`` one, which is done, to where the logs ended at first."""
        before = {} if last is None else {item.log: item.until for item in last.readings}
        plan = ReplayPlan(
            stream=self._stream.name,
            number=1 if last is None else last.number + 1,
            readings=tuple(
                next_reading(
                    mark.log,
                    before=before.get(mark.log),
                    marker=None if (found := marker(self._sink, mark.log)) is None else found.position,
                    end=mark.high_watermark,
                    where=f"{mark.log} with topic id {mark.log.topic_id}, group {self._sink.group}",
                )
                for mark in self._ends
            ),
        )
        self.plans.begin(plan)
        return plan

    def run(self, plan: ReplayPlan) -> Replayed:
        """Deliver what of the plan is not delivered yet, check the counts, and say that it is done."""
        log_starts = {mark.log: mark.log_start for mark in watermarks(self._sink.bootstrap, self._logs)}
        held = {
            item.log: OffsetRange(start=log_starts[item.log], end=item.until)
            for item in plan.readings
            if log_starts[item.log] < item.until
        }
        lost = sum(max(min(log_starts[item.log], item.until) - item.start, 0) for item in plan.readings)
        try:
            with self._progress(plan):
                done = self._deliver(plan, held)
        except (PySparkException, Py4JJavaError) as error:
            raise task_error(error, where=f"replay of {self._stream.name}") from error
        self.plans.finish(plan)
        return done + Replayed(plans=(plan.number,), lost=lost)

    def _deliver(self, plan: ReplayPlan, held: Mapping[TopicPartition, OffsetRange]) -> Replayed:
        spans = {
            item.log.partition: TaskRange(
                log=item.log, start=item.start, until=item.until, batch=plan.number, first=item.first
            )
            for item in plan.readings
        }
        if not held:
            return _balanced(plan, {}, (), 0, self._move_on(spans))
        starts = {partition: span.start for partition, span in spans.items()}
        letters = self._letters(held)
        wanted = chosen(letters, starts).persist()  # read by three more jobs, and the topic would be read for each
        try:
            count = wanted.count()
            counts, kinds = not_ours(letters, starts)
            accounts = self._write(letters, wanted, spans) if count else []
            there = {account["partition"] for account in accounts}
            accounts += self._move_on({partition: span for partition, span in spans.items() if partition not in there})
            done = _balanced(plan, counts, kinds, count, accounts)
            return self._with_earlier(done, plan, wanted) if done.earlier else done
        finally:
            wanted.unpersist()

    def _letters(self, ranges: Mapping[TopicPartition, OffsetRange]) -> DataFrame:
        return read_letters(self._spark, self._stream, self._settings, self._source_id, ranges)

    def _write(self, letters: DataFrame, wanted: DataFrame, spans: Mapping[int, TaskRange]) -> list[dict[str, int]]:
        """Deliver the wanted letters; an account per log that has any."""
        rows = records(source_rows(letters, wanted, self._stream), self._stream)
        classified = classify(rows, self._stream, self._transform)
        made = output(classified, self._stream, self._source_id, record_limits=self._limits)
        ordered = to_deliver(made, wanted, len(spans))
        return [row.asDict() for row in ordered.mapInArrow(_deliverer(dict(spans), self._sink), _ACCOUNT).collect()]

    def _move_on(self, spans: Mapping[int, TaskRange]) -> list[dict[str, int]]:
        """Move the markers of logs that have nothing to deliver."""
        return [_account(deliver((), span, self._sink), partition) for partition, span in spans.items()]

    def _with_earlier(self, done: Replayed, plan: ReplayPlan, wanted: DataFrame) -> Replayed:
        """What the replay that was cut off delivered is known by where it is: letters of the next attempt came back."""
        ends = {mark.log: mark.high_watermark for mark in watermarks(self._sink.bootstrap, self._logs)}
        since = {
            item.log: OffsetRange(start=item.until, end=ends[item.log])
            for item in plan.readings
            if item.until < ends[item.log]
        }
        came_back = 0
        if since:
            letters = self._letters(since).where(F.col("kind").isNull()).select("partition", "offset", "attempt")
            next_ones = wanted.select("partition", "offset", (F.col("attempt") + 1).alias("attempt"))
            came_back = next_ones.join(letters, ["partition", "offset", "attempt"], "left_semi").count()
        dead_earlier = min(max(came_back - done.dead_again, 0), done.earlier)
        return done + Replayed(published=done.earlier - dead_earlier, dead_again=dead_earlier)

    @contextmanager
    def _progress(self, plan: ReplayPlan) -> Iterator[None]:
        """Tell how far the markers are, every half second; a broker that does not answer is no reason to stop."""
        total = sum(item.until - item.start for item in plan.readings)
        starts = {item.log.partition: item.start for item in plan.readings}
        over = Event()

        def look() -> None:
            consumer = Consumer(
                {
                    "bootstrap.servers": self._sink.bootstrap,
                    "group.id": self._sink.group,
                    "enable.auto.commit": False,
                    "isolation.level": "read_uncommitted",  # what is under way is not waited for
                    "log_level": 0,
                }
            )
            wanted = [KafkaPartition(self._sink.marker_topic, partition) for partition in starts]
            while not over.wait(POLL_S):
                try:
                    found = consumer.committed(wanted, timeout=5)
                except KafkaException:
                    continue
                self._on_progress(sum(max(item.offset - starts[item.partition], 0) for item in found), total)
            consumer.close()

        thread = Thread(target=look, name="replay-progress")
        self._on_progress(0, total)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        self._on_progress(total, total)


def _balanced(
    plan: ReplayPlan,
    counts: Mapping[Kind | None, int],
    kinds: tuple[NotOurs, ...],
    wanted: int,
    accounts: Sequence[Mapping[str, int]],
) -> Replayed:
    """The plan's figures; raises IncompleteError unless every letter that was read went somewhere."""
    good, dead, skipped, transactions = (
        sum(account[name] for account in accounts) for name in ("good", "dead", "skipped", "transactions")
    )
    if good + dead + skipped != wanted:
        raise IncompleteError(
            "a replay's counts do not balance",
            expected=f"{wanted} dead letters delivered",
            found=f"{good} published, {dead} dead again, {skipped} delivered earlier",
            where=f"replay {plan.number} of stream {plan.stream}",
        )
    ours = counts.get(None, 0)
    return Replayed(
        read=sum(counts.values()),
        published=good,
        dead_again=dead,
        duplicates=ours - wanted,
        not_ours=sum(counts.values()) - ours,
        kinds=kinds,
        earlier=skipped,
        transactions=transactions,
    )


def _deliverer(
    spans: Mapping[int, TaskRange], sink: Sink
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for partition, parts in groupby(_parts(batches), key=lambda part: part[0]):
            done = deliver((_complete(rows) for _, rows in parts), spans[partition], sink)
            account = _account(done, partition)
            yield pa.RecordBatch.from_pylist([account])

    return write


def _account(done: Delivered, partition: int) -> dict[str, int]:
    return {
        "skipped": done.skipped,
        "good": done.good,
        "dead": done.dead,
        "transactions": done.transactions,
        "partition": partition,
    }


def _parts(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Rows ordered by partition, cut where it changes."""
    for batch in batches:
        if not batch.num_rows:
            continue
        partitions = batch.column("source_partition").to_numpy()
        cuts = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist(), batch.num_rows]
        for start, end in pairwise(cuts):
            yield int(partitions[start]), batch.slice(start, end - start)


def _complete(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows, if there is one per dead letter; across two batches ``deliver`` finds a second one."""
    topics, offsets = rows.column("topic"), rows.column("source_offset").to_numpy()
    dropped, again = np.flatnonzero(topics.is_null()), np.flatnonzero(np.diff(offsets) == 0)
    for problem, found, at in (("dropped", "none", dropped), ("multiplied", "several", again)):
        if at.size:
            raise IncompleteError(
                f"the transformation {problem} a row",
                expected="one row per row",
                found=f"{found} for the dead letter at offset {offsets[at[0]]} of the dead-letter topic's partition"
                f" {rows.column('source_partition')[0]}",
                hint="Mend the transformation and replay again: no letter is lost, and none is replayed twice",
            )
    return rows
