"""A stream over a real Kafka topic, whose archive is written by hand: what the reconcile steps plan against."""

import hashlib
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # as in its docs
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.batch.objects import data_object
from tidemark.connections.kafka import KafkaConnection
from tidemark.core.errors import ServiceError
from tidemark.core.layout import DataName, Layout
from tidemark.core.manifest import (
    CommittedRange,
    DataFile,
    DayRows,
    Manifest,
    parse_manifest,
)
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.definitions.stream import Stream
from tidemark.kafka.topics import describe_topic, ensure_topic
from tidemark.run import Run
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings

ZONE = ZoneInfo("America/New_York")
MONDAY, TUESDAY = date(2013, 1, 14), date(2013, 1, 15)
Produce = Callable[..., list[int]]


def at(day: date, hour: int) -> int:
    """Milliseconds since the epoch of a full hour in New York."""
    return int(datetime(day.year, day.month, day.day, hour, tzinfo=ZONE).timestamp() * 1000)


@dataclass(slots=True, kw_only=True)
class Log:
    """The topic, what was produced to it per partition as ``{offset: timestamp_ms}``, and its archive."""

    stream: Stream
    settings: Settings
    produce_records: Produce
    produced: dict[int, dict[int, int]] = field(default_factory=dict)

    @property
    def store(self) -> ObjectStore:
        return ObjectStore(self.settings)

    @property
    def layout(self) -> Layout:
        return Layout(prefix=self.settings.prefix, stream=self.stream.name)

    def run(self, name: str = "run-1", **changes: object) -> Run:
        """A run of the stream, with other batch settings where given."""
        stream = self.stream.model_copy(update={"batch": self.stream.batch.model_copy(update=changes)})
        return Run(stream=stream, settings=self.settings, store=self.store, layout=self.layout, name=name)

    def owner(self, partition: int = 0) -> TopicPartition:
        return describe_topic(self.settings.kafka, self.stream.topic)[partition]

    def produce(self, number: int, timestamp_ms: int, *, partition: int = 0) -> None:
        records = [(b"k", f"v{item}".encode(), timestamp_ms, partition, [("h", b"x")]) for item in range(number)]
        for offset in self.produce_records(self.stream.topic, records):
            self.produced.setdefault(partition, {})[offset] = timestamp_ms

    def archive(
        self,
        start: int,
        end: int,
        *,
        writer: str = "query-a",
        partition: int = 0,
        per_file: int = 1000,
        committed_at_us: int = 0,
        day_settings: str | None = None,
    ) -> str:
        """Commit ``[start, end)`` as the writer's next batch, in objects of ``per_file`` rows; the manifest's key."""
        owner, committed = self.owner(partition), OffsetRange(start=start, end=end)
        rows = [(o, ms) for o, ms in sorted(self.produced.get(partition, {}).items()) if o in committed]
        batches = [rows[i : i + per_file] for i in range(0, len(rows), per_file)]
        files = tuple(self._object(owner, committed, writer, seq, own) for seq, own in enumerate(batches))
        before = [item for item in self.manifests() if item.writer == writer]
        manifest = Manifest(
            stream=self.stream.name,
            writer=writer,
            batch=before[-1].batch + 1 if before else 0,
            committed_at_us=committed_at_us,
            time_zone=self.stream.time_zone,
            settings="by hand",
            day_settings=day_settings,
            previous=hashlib.sha256(before[-1].to_json()).hexdigest() if before else None,
            ranges=(CommittedRange(log=owner, range=committed, rows=len(rows)),),
            files=files,
        )
        key = self.layout.manifest_key(writer, manifest.batch)
        assert self.store.put_if_absent(key, manifest.to_json())
        return key

    def manifests(self) -> list[Manifest]:
        found = []
        for item in self.store.list(self.layout.manifest_prefix):
            body = self.store.get(item.key)
            assert body is not None
            found.append(parse_manifest(body, where=item.key))
        return found

    def _object(
        self,
        owner: TopicPartition,
        committed: OffsetRange,
        writer: str,
        seq: int,
        rows: Sequence[tuple[int, int]],
    ) -> DataFile:
        name = DataName(path=writer, topic=owner.topic, partition=owner.partition, range=committed, seq=seq)
        key = self.layout.data_key(name)
        times = [datetime.fromtimestamp(ms / 1000, UTC) for _, ms in rows]
        nothing = {"topic": owner.topic, "partition": owner.partition, "timestamp_type": 0, "key": None, "value": None}
        body = data_object(
            [
                {**nothing, "offset": offset, "timestamp": time, "event_time": time, "headers": []}
                for (offset, _), time in zip(rows, times, strict=True)
            ]
        )
        self.store.put(key, body)
        days = []
        by_day = sorted((time.astimezone(ZONE).date(), offset) for time, (offset, _) in zip(times, rows, strict=True))
        for day, group in itertools.groupby(by_day, key=lambda item: item[0]):
            offsets = [offset for _, offset in group]
            days.append(DayRows(day=day, rows=len(offsets), first_offset=offsets[0], last_offset=offsets[-1]))
        return DataFile(
            key=key,
            log=owner,
            range=committed,
            rows=len(rows),
            bytes=len(body),
            first_offset=rows[0][0],
            last_offset=rows[-1][0],
            min_timestamp_us=min(ms for _, ms in rows) * 1000,
            max_timestamp_us=max(ms for _, ms in rows) * 1000,
            days=tuple(days),
            checksum="by hand",
            sha256=hashlib.sha256(body).hexdigest(),
        )


def drop_below(log: Log, offset: int, partition: int = 0) -> None:
    """What retention does: move the log's start."""
    admin = AdminClient({"bootstrap.servers": log.settings.kafka_bootstrap})
    request = admin.delete_records([KafkaPartition(log.stream.topic, partition, offset)])
    for future in request.values():
        future.result(timeout=60)


def set_topic(log: Log, name: str, value: str) -> None:
    """Change one setting of the topic."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, log.stream.topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": log.settings.kafka_bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(60)


def recreate(log: Log) -> None:
    """Delete the topic and make it again; returns once the broker shows the new one."""
    bootstrap, topic = log.settings.kafka_bootstrap, log.stream.topic
    before = log.owner().topic_id
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(timeout=60)
    deadline = time.monotonic() + 120
    # The broker answers before the deletion, and then the creation, is everywhere.
    while not ensure_topic(KafkaConnection.plain(bootstrap), topic, partitions=2, config={"retention.ms": "-1"}):
        assert time.monotonic() < deadline
    while not _is_new(log, before):
        assert time.monotonic() < deadline


def _is_new(log: Log, before: str) -> bool:
    try:
        return log.owner().topic_id != before
    except ServiceError:
        return False
