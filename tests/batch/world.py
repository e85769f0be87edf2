"""A small stream whose log is a Python list: an archive built by hand, and an oracle that never asks Tidemark."""

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import yaml
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from tests.batch.objects import archive_rows
from tests.batch.steps import finalize, pass_audit
from tests.catalog import another_catalog
from tests.plans import make_plan
from tidemark.core.manifest import Manifest
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.core.plan import Plan, Target
from tidemark.core.seal import Seal
from tidemark.reconcile.publish import publish_run
from tidemark.reconcile.rebuild.step import rebuild_run
from tidemark.reconcile.results import REBUILD, RebuildResult, RefilledRange
from tidemark.run import Run
from tidemark.settings import Settings
from tidemark.tables.snapshots import main_snapshots

ZONE = ZoneInfo("America/New_York")
TRANSFORM = """
from pyspark.sql import functions as F

def transform(records):
    return records.select(
        "source", "event_time", "event.id", F.upper("event.name").alias("name"), "event.delay",
        F.when(F.col("event.name") == "refused", F.lit("refused by the transformation")).alias("reject"),
    )
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record of the log, as the oracle knows it."""

    log: TopicPartition
    offset: int
    timestamp: datetime
    value: bytes | None
    key: bytes | None = b"key"

    @property
    def day(self) -> date:
        return self.timestamp.astimezone(ZONE).date()

    @property
    def event(self) -> dict[str, Any] | None:
        """The record's event where it is a good one."""
        try:
            event = json.loads(self.value or b"")
        except ValueError:
            return None
        return event if isinstance(event, dict) and event.get("name") != "refused" else None


def moment(day: int, hour: int = 12, minute: int = 0) -> datetime:
    """A time of January 2013 in New York, in UTC."""
    return datetime(2013, 1, day, hour, minute, tzinfo=ZONE).astimezone(UTC)


def january(day: int) -> date:
    return date(2013, 1, day)


def value(number: int, name: str = "row", delay: float = 1.5) -> bytes:
    return json.dumps({"id": number, "name": name, "delay": delay}).encode()


@dataclass(slots=True, kw_only=True)
class World:
    """The stream with its log, the manifests of its archive, and the Spark session the steps run in."""

    spark: SparkSession
    settings: Settings
    name: str
    records: list[Record] = field(default_factory=list)
    manifests: list[Manifest] = field(default_factory=list)
    topic_id: str = "topic-id-1"
    _batches: dict[str, int] = field(default_factory=dict)

    @classmethod
    def make(
        cls,
        spark: SparkSession,
        settings: Settings,
        folder: Path,
        *,
        checks: Sequence[dict[str, Any]] = (),
        transform: str = TRANSFORM,
        value_schema: str = "id INT, name STRING, delay DOUBLE",
        personal: Sequence[str] = (),
        **batch: Any,
    ) -> "World":
        name = f"world_{uuid.uuid4().hex[:10]}"
        definition = {
            "name": name,
            "topic": name,
            "time_zone": str(ZONE),
            "value_schema": value_schema,
            "personal": list(personal),
            "speed": {"topic": f"{name}.live", "dead_letter_topic": f"{name}.dead"},
            "batch": {"checks": list(checks), **batch},
        }
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(definition), encoding="utf-8")
        (folder / f"{name}.py").write_text(transform, encoding="utf-8")
        return cls(spark=spark, settings=settings.model_copy(update={"streams_dir": folder}), name=name)

    def log(self, partition: int = 0) -> TopicPartition:
        return TopicPartition(topic=self.name, topic_id=self.topic_id, partition=partition)

    def produce(self, items: Iterable[tuple[datetime, bytes | None]], *, partition: int = 0) -> None:
        log = self.log(partition)
        at = sum(item.log == log for item in self.records)
        for number, (timestamp, body) in enumerate(items):
            # Microseconds that differ make a mixed-up row visible.
            exact = timestamp + timedelta(milliseconds=number)
            self.records.append(Record(log=log, offset=at + number, timestamp=exact, value=body))

    def archive(
        self,
        start: int,
        end: int,
        *,
        writer: str = "stream",
        partition: int = 0,
        folder: str = "p",
    ) -> str:
        """Commit offsets ``[start, end)`` as one object and manifest of ``writer``; the object's key."""
        run, log = self.run("archive"), self.log(partition)
        batch = self._batches.get(writer, 0)
        self._batches[writer] = batch + 1
        key, manifest = archive_rows(
            run.store,
            run.layout,
            ZONE,
            writer=writer,
            batch=batch,
            log=log,
            span=OffsetRange(start=start, end=end),
            rows=[_row(item) for item in self.records if item.log == log and start <= item.offset < end],
            path=folder,
        )
        self.manifests.append(manifest)
        return key

    def run(self, name: str) -> Run:
        return Run.open(self.name, name, self.settings)

    def plan(self, name: str, days: Sequence[date], *, seals: Sequence[Seal] = (), force: bool = False) -> Run:
        """A run with a finalized plan of the days over everything produced so far."""
        run = self.run(name)
        ends: dict[TopicPartition, int] = {}
        for item in self.records:
            ends[item.log] = max(ends.get(item.log, 0), item.offset + 1)
        targets = [Target(log=log, start=0, end=end, log_start=0, high_watermark=end) for log, end in ends.items()]
        plan = make_plan(
            stream=self.name,
            time_zone=str(ZONE),
            run=name,
            requested=days,
            targets=targets,
            manifests=self.manifests,
            seals=seals,
            force=force,
        )
        self.save_plan(run, plan, force=force)
        return run

    def save_plan(self, run: Run, plan: Plan, *, force: bool = False) -> None:
        """Save the results of the steps before the rebuild."""
        refilled = tuple(
            RefilledRange(log=log.target.log, range=used.range, batch=used.batch)
            for log in plan.logs
            for used in log.used
            if used.writer == f"refill-{run.name}"
        )
        finalize(run, plan, main_snapshots(self.settings, run.stream), force=force, refilled=refilled)

    def rebuild(self, run: Run) -> RebuildResult:
        rebuild_run(run, self.spark)
        return run.require(REBUILD)

    def reconcile(
        self, name: str, days: Sequence[date], *, audit: Callable[[Run, SparkSession], None] = pass_audit
    ) -> Run:
        """Plan, rebuild, audit and publish."""
        run = self.plan(name, days)
        rebuild_run(run, self.spark)
        audit(run, self.spark)
        publish_run(run, self.spark)
        return run

    @property
    def table(self) -> str:
        return f"{self.settings.catalog}.{self.settings.namespace}.{self.name}"

    @contextmanager
    def table_of_another_reader(self) -> Iterator[Table]:
        """The published table as pyiceberg loads it, by a catalog of its own."""
        with another_catalog(self.settings) as catalog:
            yield catalog.load_table((self.settings.namespace, self.name))

    def published(self) -> list[tuple[Any, ...]]:
        """The table's rows, in the form of ``expected_rows``."""
        identity = ("_day", "_topic_id", "_kafka_partition", "_offset")
        times = ("unix_micros(_timestamp)", "unix_micros(_event_time)")
        rows = self.spark.table(self.table).selectExpr(*identity, *times, "id", "name", "delay")
        return _sorted(tuple(row) for row in rows.collect())

    def quarantined(self) -> list[tuple[Any, ...]]:
        """The quarantine's rows without their reasons, in the form of ``expected_quarantine``."""
        frame = self.spark.table(f"{self.table}_quarantine")
        columns = ("_day", "_topic_id", "_kafka_partition", "_offset", "key", "value")
        return _sorted(
            (*row[:4], bytes(row[4]), None if row[5] is None else bytes(row[5]))
            for row in frame.select(*columns).collect()
        )

    def expected_rows(self, *days: date) -> list[tuple[Any, ...]]:
        """Each good record of the days, once."""
        rows = []
        for item in self.records:
            event = item.event
            if item.day in days and event is not None:
                times = (_micros(item.timestamp), _micros(item.timestamp))
                where = (item.day, item.log.topic_id, item.log.partition, item.offset)
                rows.append((*where, *times, event["id"], event["name"].upper(), event["delay"]))
        return _sorted(rows)

    def expected_quarantine(self, *days: date) -> list[tuple[Any, ...]]:
        return _sorted(
            (item.day, item.log.topic_id, item.log.partition, item.offset, item.key, item.value)
            for item in self.records
            if item.day in days and item.event is None
        )


def _sorted(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=lambda row: row[:4])


def _micros(timestamp: datetime) -> int:
    return (timestamp - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _row(item: Record) -> dict[str, Any]:
    return {
        "topic": item.log.topic,
        "partition": item.log.partition,
        "offset": item.offset,
        "timestamp": item.timestamp,
        "timestamp_type": 0,
        "key": item.key,
        "value": item.value,
        "headers": [{"key": "trace", "value": b"\x00\xff"}],
        "event_time": item.timestamp,
    }
