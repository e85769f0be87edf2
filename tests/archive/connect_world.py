"""A topic, and the archive that a Kafka Connect sink wrote of it."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from tests.archive.connect import ConnectSink, Value
from tests.archive.oracle import Oracle
from tests.conftest import Produce
from tidemark.adopt.run import Imported, import_objects
from tidemark.definitions.stream import Stream
from tidemark.settings import Settings

ZONE = ZoneInfo("America/New_York")
FIRST = datetime(2013, 1, 14, 12, tzinfo=ZONE).astimezone(UTC)


@dataclass(slots=True, kw_only=True)
class World:
    """A topic, what was produced to it by (partition, offset), and a Connect sink that wrote some of it."""

    spark: SparkSession
    settings: Settings
    stream: Stream
    sink: ConnectSink
    produce_records: Produce
    values: dict[tuple[int, int], Value] = field(default_factory=dict)

    def produce(self, count: int, *, partition: int = 0) -> None:
        """So many records, an hour of event time apart, from Monday noon in New York on."""
        start = sum(place[0] == partition for place in self.values)
        for number in range(start, start + count):
            moment = FIRST + timedelta(hours=number)
            value = {"n": 1000 * partition + number, "at": moment.isoformat().replace("+00:00", "Z")}
            # Connect writes values again: not with these bytes. The record's timestamp is not its event's.
            body, milliseconds = json.dumps(value, indent=1).encode(), int(moment.timestamp() * 1000) + 1
            (offset,) = self.produce_records(self.stream.topic, [(b"k", body, milliseconds, partition, [])])
            self.values[partition, offset] = value

    def records(self, *offsets: int, partition: int = 0) -> list[Value]:
        return [self.values[partition, offset] for offset in offsets]

    def with_offsets(self, *offsets: int, partition: int = 0) -> list[Value]:
        """The values with the field that the sink's InsertField transform adds."""
        return [{**self.values[partition, offset], "_offset": offset} for offset in offsets]

    def connect(
        self, start: int, end: int, form: str = "json", *, partition: int = 0, folder: str | None = None
    ) -> str:
        values = self.records(*range(start, end), partition=partition)
        return self.sink.write(partition, start, values, form, folder=folder)

    def adopt(self, **options: Any) -> Imported:
        return import_objects(self.spark, self.settings, self.stream, self.sink.topics_dir, **options)

    def forget(self, before: int, *, partition: int = 0) -> None:
        """Retention removes the log's records below an offset."""
        admin = AdminClient({"bootstrap.servers": self.settings.kafka_bootstrap})
        (deleted,) = admin.delete_records([KafkaPartition(self.stream.topic, partition, before)]).values()
        deleted.result(60)

    @property
    def oracle(self) -> Oracle:
        return Oracle(self.settings, self.stream.name)

    def archived(self) -> dict[tuple[int, int], dict[str, Any]]:
        """Every row that a manifest lists, by partition and offset; no offset twice."""
        found = self.oracle.archive()
        assert set(found.positions.values()) <= {1}
        return {(row["partition"], row["offset"]): row for row in found.rows}

    def numbers(self) -> dict[tuple[int, int], int]:
        """The archived values' ``n`` by partition and offset."""
        return {place: json.loads(row["value"])["n"] for place, row in self.archived().items()}

    def expected(self, *offsets: int, partition: int = 0) -> dict[tuple[int, int], int]:
        return {(partition, offset): 1000 * partition + offset for offset in offsets}


MakeWorld = Callable[..., World]
