"""Source records, an archive and two output topics, all made by hand, and an oracle that counts in plain Python."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from tests.batch.objects import archive_rows
from tests.conftest import MakeStream, Produce, Record
from tidemark.core.delivery import DELIVERY
from tidemark.core.layout import Layout
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.definitions.stream import Stream
from tidemark.delivery_audit.report import Tally
from tidemark.kafka.topics import describe_topic
from tidemark.run import Run
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.speed.exactly_once.marker import TaskRange
from tidemark.speed.replay.plan import ReplayPlan, ReplayPlans

ZONE = ZoneInfo("America/New_York")
VERSION = 3
# Doubles n, keeps the name, and rejects an n that ends with 7.
TRANSFORM = """\
from pyspark.sql import functions as F

def transform(records):
    unwanted = F.when(F.col("event.n") % 10 == 7, "ends with 7")
    twice = (F.col("event.n") * 2).alias("twice")
    return records.select("source", "event_time", twice, "event.name", unwanted.alias("reject"))
"""
# (is a row, outcome, kind, hour, source partition)
Outcome = tuple[bool, str, str | None, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A source record. Its event time is its timestamp, ``ms`` since the epoch."""

    partition: int
    offset: int
    ms: int
    key: bytes | None
    value: bytes | None

    @property
    def live(self) -> bytes | None:
        """The live record's value; None for one that must be a dead letter."""
        try:
            event = json.loads(self.value or b"")
        except ValueError:
            return None
        if not isinstance(event["n"], int) or event["n"] % 10 == 7:
            return None
        made = {"twice": 2 * event["n"], "name": event.get("name")}
        return json.dumps(made, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Out:
    """A record for an output topic, with the source coordinates for its headers; ``None``: no header."""

    on_live: bool
    key: bytes | None
    value: bytes | None
    topic_id: str | None
    partition: int | None
    offset: int | None
    ms: int | None
    stream: str | None = None
    attempt: int = 0
    version: int = VERSION
    exception: str = "rejected"
    to: int = 0

    @property
    def headers(self) -> list[tuple[str, bytes | None]]:
        named = None not in (self.topic_id, self.offset)
        texts = {
            "source": f"any:{self.topic_id}:{self.partition}:{self.offset}" if named else None,
            "timestamp": self.ms,
            "stream": f"{self.stream}:{self.version}" if self.stream else None,
        }
        if not self.on_live:
            texts |= {"reason": "bad", "exception": self.exception, "attempt": self.attempt}
        # The source's own headers come first, and must not be read as Tidemark's.
        own: list[tuple[str, bytes | None]] = [("tidemark.source", b"any:another:0:99999")]
        ours = [(f"tidemark.{name}", str(text).encode()) for name, text in texts.items() if text is not None]
        return [*(own if named else []), *ours]


@dataclass(slots=True, kw_only=True)
class Delivery:
    """A stream with its topics. ``archived`` are the source records with rows in the archive.

    ``known``: the oracle knows everything that was done to it. ``topic_deleted``: its topic was deleted or recreated.
    """

    stream: Stream
    settings: Settings
    produce: Produce
    topic_id: str
    sources: dict[tuple[int, int], Source] = field(default_factory=dict)
    archived: dict[tuple[int, int], Source] = field(default_factory=dict)
    outs: list[tuple[Out, int]] = field(default_factory=list)
    replayed_until: int = 0
    known: bool = True
    topic_deleted: bool = False
    positions: dict[int, int] = field(default_factory=dict)
    _batches: Counter[str] = field(default_factory=Counter)

    @classmethod
    def make(cls, make_stream: MakeStream, settings: Settings, produce: Produce, *, partitions: int = 1) -> "Delivery":
        stream = make_stream(
            partitions=partitions,
            transform=TRANSFORM,
            version=VERSION,
            value_schema="n BIGINT, name STRING",
            time_zone=str(ZONE),
        )
        topic_id = describe_topic(settings.kafka, stream.topic)[0].topic_id
        return cls(stream=stream, settings=settings, produce=produce, topic_id=topic_id)

    @property
    def store(self) -> ObjectStore:
        return ObjectStore(self.settings)

    @property
    def layout(self) -> Layout:
        return Layout(prefix=self.settings.prefix, stream=self.stream.name)

    def write_sources(self, records: Sequence[tuple[int, int, bytes | None]]) -> None:
        """Produce (partition, ms, value)."""
        keys = [None if at % 5 == 0 else f"k{at}".encode() for at in range(len(records))]
        rows: list[Record] = [
            (key, value, ms, partition, []) for key, (partition, ms, value) in zip(keys, records, strict=True)
        ]
        for key, (partition, ms, value), offset in zip(
            keys, records, self.produce(self.stream.topic, rows), strict=True
        ):
            self.sources[partition, offset] = Source(partition=partition, offset=offset, ms=ms, key=key, value=value)

    def archive(self, writer: str, partition: int, start: int, end: int, *, without: Iterable[int] = ()) -> None:
        """Commit ``[start, end)`` as one object of ``writer``'s next batch; no row for the offsets ``without``."""
        rows = [self.sources[partition, offset] for offset in range(start, end) if offset not in set(without)]
        batch = self._batches[writer]
        self._batches[writer] += 1
        _, manifest = archive_rows(
            self.store,
            self.layout,
            ZONE,
            writer=writer,
            batch=batch,
            log=TopicPartition(topic=self.stream.topic, topic_id=self.topic_id, partition=partition),
            span=OffsetRange(start=start, end=end),
            rows=[_row(item, self.stream.topic) for item in rows],
        )
        assert self.store.put_if_absent(self.layout.manifest_key(writer, batch), manifest.to_json())
        self.archived |= {(partition, item.offset): item for item in rows}

    def deliver(self, outs: Sequence[Out]) -> None:
        """Produce them with the current time as timestamp, in order per topic."""
        now_ms = int(datetime.now(UTC).timestamp() * 1000)
        for on_live in (True, False):
            of_topic = [item for item in outs if item.on_live == on_live]
            topic = self.stream.speed.topic if on_live else self.stream.speed.dead_letter_topic
            records: list[Record] = [(item.key, item.value, now_ms, item.to, item.headers) for item in of_topic]
            self.outs += zip(of_topic, self.produce(topic, records), strict=True)

    def right(self, source: Source, *, attempt: int = 0, version: int = VERSION, exception: str = "rejected") -> Out:
        """The output record of a source record."""
        live = source.live
        return Out(
            on_live=live is not None,
            key=source.key,
            value=source.value if live is None else live,
            topic_id=self.topic_id,
            partition=source.partition,
            offset=source.offset,
            ms=source.ms,
            stream=self.stream.name,
            attempt=attempt,
            version=version,
            exception=exception,
        )

    def letter(self, source: Source, *, attempt: int = 0, version: int = VERSION, exception: str = "rejected") -> Out:
        """The source record as a dead letter, good or not."""
        return Out(
            on_live=False,
            key=source.key,
            value=source.value,
            topic_id=self.topic_id,
            partition=source.partition,
            offset=source.offset,
            ms=source.ms,
            stream=self.stream.name,
            attempt=attempt,
            version=version,
            exception=exception,
        )

    def stand_at(self, positions: dict[int, int]) -> None:
        """Write the speed stream's checkpoint: the next offset by partition."""
        prefix, topic = self.layout.checkpoint_prefix("speed"), self.stream.topic
        bound = {"topic": topic, "topic_id": self.topic_id}
        self.store.put(f"{prefix}source.json", json.dumps(bound).encode())
        offsets = json.dumps({topic: {str(partition): offset for partition, offset in positions.items()}})
        self.store.put(f"{prefix}offsets/0", f'v1\n{{"batchTimestampMs":1}}\n{offsets}'.encode())
        self.store.put(f"{prefix}commits/0", b'v1\n{"nextBatchWatermarkMs":0}')
        self.positions = positions

    def replay_until(self, offset: int) -> None:
        """Record that the dead letters below the offset were replayed."""
        (log,) = describe_topic(self.settings.kafka, self.stream.speed.dead_letter_topic)
        plans = ReplayPlans(self.store, self.layout, log.topic_id)
        replayed = TaskRange(log=log, start=0, until=offset, batch=1, first=True)
        plans.begin(ReplayPlan(stream=self.stream.name, number=1, ranges=(replayed,)))
        self.replayed_until = offset

    def expected(self, start: datetime, end: datetime) -> Counter[Outcome]:
        """The expected counts of an audit, computed for one source record after the other."""
        low, high = (int(moment.timestamp() * 1000) for moment in (start, end))
        found: Counter[Outcome] = Counter()
        for place, source in self.archived.items():
            if low <= source.ms < high:
                copies = [item for item in self.outs if _place(item[0], self.topic_id) == place]
                for is_row, outcome, kind in self._judge(source, copies):
                    found[is_row, outcome, kind, hour(source.ms), source.partition] += 1
        for out, _ in self.outs:
            ms = out.ms
            if _place(out, self.topic_id) in self.archived or ms is None or not low <= ms < high:
                continue
            outcome, kind = self._strange(out)
            partition = out.to if kind == "no_coordinates" else out.partition
            assert partition is not None
            found[False, outcome, kind, hour(ms), partition] += 1
        return found

    def _judge(self, source: Source, copies: list[tuple[Out, int]]) -> list[tuple[bool, str, str | None]]:
        """The outcome of an archived row, and of each record that names it."""
        good = source.live is not None
        judged: list[tuple[bool, str, str | None]] = []
        lives = [out for out, _ in copies if good and out.on_live and (out.key, out.value) == (source.key, source.live)]
        attempts: Counter[int] = Counter()
        arrived = len(lives)
        judged += [(False, "delivered", None)] * min(1, arrived) + [(False, "duplicated", None)] * max(0, arrived - 1)
        for out, at in copies:
            if any(out is item for item in lives):
                continue
            bare = out.exception == "without_value"  # its coordinates only
            same = (out.key, out.value) == ((None, None) if bare else (source.key, source.value))
            due = not out.on_live and same
            if good:
                due = due and (at < self.replayed_until if lives else bare or out.exception == "too_large")
            if due:
                attempts[out.attempt] += 1
                continue
            what = "wrong_topic" if out.on_live != good else "changed"
            judged.append((False, "unexpected", what + ("" if out.version == VERSION else "_other_version")))
        if attempts:
            beside = len(attempts) - (0 if lives else 1)
            judged += [(False, "delivered", None)] * (0 if lives else 1) + [(False, "replayed", None)] * beside
            judged += [(False, "duplicated", None)] * sum(number - 1 for number in attempts.values())
            arrived += 1
        if arrived:
            judged.append((True, "delivered", None))
        elif copies:
            judged.append((True, "mismatched", None))
        elif self.topic_deleted or source.offset < self.positions.get(source.partition, 0):
            judged.append((True, "missing", None))
        else:
            judged.append((True, "pending", "not_delivered"))
        return judged

    def _strange(self, out: Out) -> tuple[str, str | None]:
        if out.topic_id is None or out.partition is None or out.offset is None:
            return "unexpected", "no_coordinates"
        if out.topic_id != self.topic_id:
            return "unexpected", "other_log"
        known = (out.partition, out.offset) in self.sources
        # The archives of these tests have no gap before their last row.
        covered = any(place[0] == out.partition and place[1] > out.offset for place in self.archived)
        return ("not_archived", "not_archived") if known and not covered else ("unexpected", "no_such_record")


def saved(run: Run) -> dict[str, Any]:
    """The details of an audit, as they were saved."""
    details = run.require(DELIVERY).details
    assert details is not None
    return details


def counted(tally: Tally) -> Counter[Outcome]:
    """An audit's counts in the oracle's form."""
    found: Counter[Outcome] = Counter()
    for group in tally.groups:
        if group.outcome in ("outside", "other_stream"):
            continue
        assert group.hour_us is not None
        assert group.partition is not None
        place = (hour(group.hour_us // 1000), group.partition)
        found[group.is_row, group.outcome, group.kind, *place] += group.count
    return found


def hour(ms: int) -> str:
    """The full hour before, in New York, with its offset from UTC."""
    local = datetime.fromtimestamp(ms / 1000, ZONE)
    return local.replace(minute=0, second=0, microsecond=0).isoformat()


def ms_of(moment: str) -> int:
    """µs of an ISO time in New York; the first one if it is repeated."""
    return int(datetime.fromisoformat(moment).replace(tzinfo=ZONE).timestamp() * 1000)


def _place(out: Out, topic_id: str) -> tuple[int | None, int | None] | None:
    return (out.partition, out.offset) if out.topic_id == topic_id else None


def _row(item: Source, topic: str) -> dict[str, object]:
    time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=item.ms)
    return {
        "topic": topic,
        "partition": item.partition,
        "offset": item.offset,
        "timestamp": time,
        "timestamp_type": 0,
        "key": item.key,
        "value": item.value,
        "headers": [],
        "event_time": time,
    }
